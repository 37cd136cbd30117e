"""The suite `decode` of `trie bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashtrie.cli.output import Output, facts, table
from flashtrie.cli.progress import progress

SEED = 0


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
    from flashtrie.cpu.machine import commit, processor

    head: dict[str, Any] = {"device": device, "chip": processor(), "driver": None}
    output.note_if_compiling()
    with flashtrie.open(path) as trie, progress(output) as report:
        timer = None
        if device == "cuda":
            from flashtrie.gpu.decode_bench import by_events
            from flashtrie.gpu.devices import chip, driver

            head |= {"chip": chip(), "driver": driver()}
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
    head |= {"kind": header.tags.get("kind"), "commit": commit()}
    head |= {"keywords": header.keywords, "seed": SEED}
    cells = [list(row.values()) for row in rows]
    output.result(head | {"rows": rows}, f"{facts(head.items())}\n\n{table(list(rows[0]), cells)}")
