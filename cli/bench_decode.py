"""The suite `decode` of `trie bench`."""

from __future__ import annotations

from collections.abc import Sequence

from flashtrie.cli.measured import SEED, key_set, machine, print_rows
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress


def bench_decode(
    output: Output,
    path: str,
    device: str,
    *,
    beam_widths: Sequence[int],
    batches: Sequence[int],
    top_k: int,
    steps: int,
) -> None:
    """Measure the way from logits to keywords, and print it with the share of each part."""
    import flashtrie
    from flashtrie.cpu.decode_bench import measure

    output.note_if_compiling()
    with flashtrie.open(path) as trie, progress(output) as report:
        timer = None
        if device == "cuda":
            from flashtrie.gpu.decode_bench import by_events

            timer = by_events(trie.to_device(report))
        rows = [
            row.as_json()
            for row in measure(
                trie,
                beam_widths=beam_widths,
                batches=batches,
                top_k=top_k,
                steps=steps,
                seed=SEED,
                timer=timer,
                progress=report,
            )
        ]
        header = trie.artifact.header
    print_rows(output, machine(device) | key_set(header), rows)
