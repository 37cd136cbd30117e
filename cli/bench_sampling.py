"""The suite `sampling` of `trie bench`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flashtrie.cli.measured import SEED, machine, print_rows
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress


def bench_sampling(output: Output, device: str) -> None:
    """Measure top-k and top-p of power-law and other logits, and print."""
    from flashtrie.cpu.machine import commit

    if device == "cuda":
        from flashtrie.gpu import sampling_bench as gpu_bench

        copied = gpu_bench.copy_terabytes_per_second()
        found: Iterator[dict[str, Any]] = (
            row for part in gpu_bench.GRID for row in gpu_bench.measure(part, seed=SEED)
        )
    else:
        from flashtrie.cpu import sampling_bench as cpu_bench

        output.note_if_compiling()
        copied = cpu_bench.copy_terabytes_per_second()
        found = cpu_bench.measure(seed=SEED)
    head = machine(device) | {"commit": commit(), "seed": SEED}
    head["copy_terabytes_per_second"] = copied
    rows = []
    with progress(output) as report:
        for row in found:
            rows.append(row)
            if report:
                report(f"{row['batch']} x {row['vocab']}", len(rows), 0, "rows")
    print_rows(output, head, rows)
