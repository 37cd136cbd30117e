"""Times of selection on the CPU: microseconds of a call, for shapes, modes and results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from flashtrie.cpu import sampling

SHAPES = ((1, 32768), (1, 131072), (16, 131072), (1, 2200000))
MODES = {"k": (50, 1.0), "p": (0, 0.9), "k+p": (50, 0.9)}
RESULTS = ("mask", "candidates", "token")
SCRATCH_BYTES = 2 * 8 * (1 << 16)  # bins of a thread
TURNS = 5


def measure(seed: int = 0, threads: int | None = None) -> Iterator[dict[str, Any]]:
    """A row for each shape, mode and result: the median of five calls on power-law logits.

    terabytes_per_second counts the logits once, and twice for the mask; peak_bytes is what a call
    holds beyond them and its output. Some seconds in all.
    """
    generator = np.random.default_rng(seed)
    for rows, size in SHAPES:
        ranks = np.stack([generator.permutation(size) + 1.0 for _ in range(rows)])
        logits = (-1.1 * np.log(ranks)).astype(np.float32)
        for mode, (k, p) in MODES.items():
            for result in RESULTS:
                seconds = _seconds(logits, k, p, result, threads)
                moved = logits.nbytes * (2 if result == "mask" else 1)
                yield {
                    "batch": rows,
                    "vocab": size,
                    "mode": mode,
                    "result": result,
                    "microseconds": seconds * 1e6,
                    "terabytes_per_second": moved / seconds / 1e12,
                    "peak_bytes": SCRATCH_BYTES * min(rows, threads or rows),
                }


def _seconds(logits: Any, k: int, p: float, result: str, threads: int | None) -> float:
    rows, size = logits.shape
    arguments = (np.full(rows, k), np.full(rows, p), np.ones(rows))
    positions = np.arange(rows)
    out = np.empty_like(logits)
    times = []
    for _ in range(TURNS + 1):  # the first may compile
        started = time.perf_counter()
        selection = sampling.select(logits, *arguments, threads=threads)
        if result == "mask":
            selection.mask(out)
        elif result == "candidates":
            selection.candidates(k or size)
        else:
            selection.tokens(positions, positions)
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))
