"""The suite `search` of `trie bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashtrie.cli.measured import SEED, key_set, machine, print_rows
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress


def bench_search(
    output: Output,
    path: str,
    device: str,
    *,
    beam_widths: Sequence[int],
    batches: Sequence[int],
    top_k: int,
    steps: int,
    queries: int,
    against: bool,
    save_queries: str | None,
    plot: str | None,
    force: bool,
) -> bool:
    """Measure, print and write; whether results were equal where they were compared."""
    import flashtrie
    from flashtrie.cpu.bench import bench
    from flashtrie.cpu.plot import check_plot_output, write_plot
    from flashtrie.cpu.query_files import check_queries_output, write_queries

    if save_queries:
        check_queries_output(save_queries, force=force, reads=[path])
    if plot:
        check_plot_output(plot, force=force, reads=[path])
    output.note_if_compiling()
    with flashtrie.open(path) as trie, progress(output) as report:
        on_device = _on_device(trie) if device == "cuda" else {}
        rows, used = bench(
            trie,
            beam_widths=beam_widths,
            batches=batches,
            top_k=top_k,
            steps=steps,
            queries=queries,
            seed=SEED,
            against=trie if against else None,
            progress=report,
            **on_device,
        )
        header = trie.artifact.header
        if save_queries:
            write_queries(save_queries, used, force=force)
    head = machine(device)
    if device == "cuda":
        head["random_sectors_per_second"] = on_device["traffic"].sectors_per_second
    head |= key_set(header)
    if plot:
        title = f"{header.keywords:,} keywords, {head['kind'] or 'no kind'}, {head['chip']}"
        write_plot(plot, title, rows, force=force)
    print_rows(output, head, [row.as_json() for row in rows])
    return not any(row.equal is False for row in rows)


def _on_device(trie: Any) -> dict[str, Any]:
    """What the benchmark takes of the GPU: an engine, a timer, and what counts its reads."""
    from flashtrie.gpu.timing import ByEvents
    from flashtrie.gpu.traffic import Traffic

    engine = trie.to_device()
    return {"engine": engine, "timer": ByEvents(engine), "traffic": Traffic(engine)}
