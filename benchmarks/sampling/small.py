"""Every kernel of sampling once or more on small rows, for compute-sanitizer to watch.

compute-sanitizer --tool memcheck --error-exitcode 1 python -m benchmarks.sampling.small
compute-sanitizer --tool racecheck --error-exitcode 1 python -m benchmarks.sampling.small
"""

from __future__ import annotations

import sys
from typing import Any

import cupy
import numpy as np

from flashtrie.gpu import logits as proposals
from flashtrie.gpu import sampling
from flashtrie.gpu.sampling_bench import matrix

ROWS, SIZE = 2, 4603  # above what a sample covers whole, and with an end that fits no vector
METHODS: tuple[tuple[str, ...], ...] = (("hold",), ("mass",), ())


def main() -> int:
    """Select in every way; exit code 1 where the ways to top-p differ."""
    sampling.LEAST = 0  # the methods for long rows, too
    generator = np.random.default_rng(0)
    equal = True
    for dtype in (np.float32, np.uint16):
        rows = generator.standard_normal((ROWS, SIZE)).astype(np.float32)
        rows[1, 5] = np.nan
        if dtype == np.uint16:
            rows = (rows.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
        logits = cupy.asarray(rows)
        masks = [_all_results(logits, 0, 0.9, methods) for methods in METHODS]
        equal &= all(bool((mask == masks[0]).all()) for mask in masks)
        _all_results(logits, 9, 0.9, ())
    _all_results(logits, 3000, 0.99, (), in_order=True)
    _search_all()
    cupy.cuda.Device().synchronize()
    print("equal" if equal else "unequal")
    return 0 if equal else 1


def _all_results(
    logits: Any, k: int, p: float, methods: tuple[str, ...], *, in_order: bool = False
) -> Any:
    """Mask, token and candidates; the mask."""
    out = cupy.empty_like(logits)
    for wanted in (
        sampling.Wanted(masked=matrix(out)),
        sampling.Wanted(seeds=3),
        sampling.Wanted(width=30),
        sampling.Wanted(width=2500 if in_order else 20, in_order=in_order),
    ):
        sampling.select(matrix(logits), k, p, 1.0, wanted, methods=methods)
    return out


def _search_all() -> None:
    """Long lists, rows that no list holds, that keep one or all, and the best of a softmax."""
    flat = cupy.zeros((1, SIZE), np.float32)
    ties = flat.copy()
    ties[:, ::2] = -30
    out = cupy.empty_like(flat)
    for methods in METHODS[:2]:
        for rows, p, temperature in (
            (ties, 0.5, 1.0), (flat, 0.5, 1.0), (flat, 0.9, 0.0), (ties, 1.0, 1.0),
        ):  # fmt: skip
            limits = cupy.full(1, p), cupy.full(1, temperature)
            for wanted in (sampling.Wanted(masked=matrix(out)), sampling.Wanted(seeds=3)):
                sampling.select(matrix(rows), 0, *limits, wanted, methods=methods)
    for k in (7, 2100):
        proposals.logit_proposals(flat.reshape(1, 1, SIZE), SIZE - 5, k)


if __name__ == "__main__":
    sys.exit(main())
