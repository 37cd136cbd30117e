"""The figures of selection on one GPU, as a table and as JSON with chip, driver, seed and commit.

python -m benchmarks.sampling.figures [--quick] OUT.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from flashtrie.cpu.machine import commit
from flashtrie.gpu import sampling_bench as bench
from flashtrie.gpu.devices import chip, driver

# Microseconds that must be reached, mask and token alike, for k, p and k+p.
MUST = {
    (1, 32768): (18, 18, 18), (1, 131072): (25, 25, 25), (16, 131072): (30, 30, 30),
    (64, 131072): (40, 60, 40), (256, 131072): (120, 160, 120), (1, 2200000): (40, 40, 40),
    (16, 2200000): (160, 250, 160), (8, 2200000): (90, 90, 90),
}  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    quick = "--quick" in sys.argv
    out = sys.argv[-1]
    rows: list[dict[str, Any]] = []

    rate = bench.copy_terabytes_per_second()
    print(f"copy {rate:.2f} TB/s")
    for part in bench.GRID:
        if quick and part.shapes == bench.MODELS:
            continue
        for row in bench.measure(part, peers=not quick):
            must = MUST.get((row["batch"], row["vocab"]), (0, 0, 0))
            limit = must[{"k": 0, "p": 1}.get(row["mode"], 2)] if part.kind == "power" else 0
            row["must_reach"] = limit or None
            rows.append(row)
            late = "" if not limit or row["microseconds"] <= limit else "  LATE"
            print(
                f"{row['batch']:4} x {row['vocab']:7} {row['logits']:7} {row['mode']:7}"
                f" {row['result']:13} {row['microseconds']:8.1f} us"
                f" {row['terabytes_per_second']:6.2f} TB/s {row['peak_bytes'] / 1e6:8.2f} MB"
                f"  must {limit}{late}",
                flush=True,
            )
    head = {"chip": chip(), "driver": driver(), "seed": 0, "commit": commit()}
    figures = {"copy_terabytes_per_second": rate, "rows": rows}
    with open(out, "w") as file:
        json.dump(head | figures, file, indent=1)


if __name__ == "__main__":
    main()
