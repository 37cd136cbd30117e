"""What each part of the pivot search is worth: truncation, pivots, duplicates, tiers, method.

    python -m benchmarks.sampling.ablation OUT.json

Every form selects on the same rows: power-law logits, where a Gaussian threshold hits, and rows
with one 1e9, where it misses. "wrong" says that a row's set is not that of the default method;
without the handling of duplicates that is so where the boundary value has copies.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import cupy

from flashtrie.cpu.machine import commit
from flashtrie.gpu import sampling
from flashtrie.gpu import sampling_bench as bench
from flashtrie.gpu.devices import chip, driver

TRUNCATIONS = ["none", "table", "analytic"]
ROWS, SIZE = 64, 131072


def main() -> None:
    """Measure, print and write."""
    power = bench.make_logits("power", ROWS, SIZE, 0)
    spiked = power.copy()
    spiked[:, 77] = 1e9
    ties = cupy.around(power, 1)
    rows: list[dict[str, Any]] = []
    head = {"chip": chip(), "driver": driver(), "seed": 0, "commit": commit()}
    result = head | {"batch": ROWS, "vocab": SIZE, "rows": rows}
    for name, logits in (("hit", power), ("miss", spiked), ("ties", ties)):
        for mode in ("k", "p"):
            expected = cupy.empty_like(logits)
            for tiers in (True, False) if mode == "k" else (True,):
                variant = () if tiers else (("THREADS", 512),)
                row = _row(logits, mode, expected, by_pivot=False, variant=variant)
                which = {"rows": name, "mode": mode, "method": "histogram", "tiers": tiers}
                rows.append(which | row)
                print(rows[-1], flush=True)
            for truncation, pivots, duplicates, tiers in itertools.product(
                (0, 1, 2), (1, 3), (1, 0), (True, False)
            ):
                # A threshold for p would rest on a sample of masses; its blocks have one size.
                if mode == "p" and (truncation or not tiers):
                    continue
                got = cupy.empty_like(logits)
                row = _row(
                    logits,
                    mode,
                    got,
                    by_pivot=True,
                    variant=(
                        ("TRUNCATION", truncation),
                        ("PIVOTS", pivots),
                        ("DUPLICATES", duplicates),
                        *(() if tiers else (("THREADS", 512),)),
                    ),
                )
                row |= {"wrong": bool((got != expected).any())}
                rows.append(
                    {
                        "rows": name,
                        "mode": mode,
                        "method": "pivots",
                        "truncation": TRUNCATIONS[truncation],
                        "pivots": pivots,
                        "duplicates": bool(duplicates),
                        "tiers": tiers,
                    }
                    | row
                )
                print(rows[-1], flush=True)
            # A run that is cut off has had its use.
            Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")


def _row(logits: Any, mode: str, out: Any, **options: Any) -> dict[str, Any]:
    k, p = bench.MODES[mode]
    workspace = sampling.Workspace()

    def call() -> None:
        wanted = sampling.Wanted(masked=bench.matrix(out))
        sampling.select(bench.matrix(logits), k, p, 1.0, wanted, workspace=workspace, **options)

    return {"microseconds": bench.time_graph([call]) * 1e6}


if __name__ == "__main__":
    main()
