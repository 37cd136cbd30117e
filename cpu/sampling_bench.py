"""Times of selection on the CPU: microseconds of a call, for shapes, modes and results.

PyTorch's sort and topk are timed beside it where PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flashtrie.cpu import sampling

SHAPES = ((1, 32768), (1, 131072), (16, 131072), (1, 2200000))
MODES = {"k": (50, 1.0), "p": (0, 0.9), "k+p": (50, 0.9)}
RESULTS = ("mask", "candidates", "token")
SCRATCH_BYTES = 2 * 8 * (1 << 16)  # bins of a thread
TURNS = 5
COPIED = 1 << 26  # bytes, several times the caches


def copy_terabytes_per_second() -> float:
    """Bytes read plus written per second of a copy by one thread."""
    source = np.ones(COPIED, np.uint8)
    target = np.empty_like(source)
    return 2 * COPIED / _median(lambda: np.copyto(target, source)) / 1e12


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
                scratch = SCRATCH_BYTES * min(rows, threads or rows)
                yield _row(logits, mode, result, seconds, scratch)
        if importlib.util.find_spec("torch"):
            yield from _peers(logits)


def _row(logits: Any, mode: str, result: str, seconds: float, peak: int | None) -> dict[str, Any]:
    moved = logits.nbytes * (2 if result in ("mask", "PyTorch sort") else 1)
    return {
        "batch": len(logits),
        "vocab": logits.shape[1],
        "mode": mode,
        "result": result,
        "microseconds": seconds * 1e6,
        "terabytes_per_second": moved / seconds / 1e12,
        "peak_bytes": peak,
    }


def _seconds(logits: Any, k: int, p: float, result: str, threads: int | None) -> float:
    rows, size = logits.shape
    arguments = (np.full(rows, k), np.full(rows, p), np.ones(rows))
    positions = np.arange(rows)
    out = np.empty_like(logits)

    def call() -> None:
        selection = sampling.select(logits, *arguments, threads=threads)
        if result == "mask":
            selection.mask(out)
        elif result == "candidates":
            selection.candidates(k or size)
        else:
            selection.tokens(positions, positions)

    return _median(call)


def _peers(logits: Any) -> Iterator[dict[str, Any]]:
    import torch

    tensor = torch.from_numpy(logits)
    yield _row(
        logits, "k", "PyTorch topk", _median(lambda: torch.topk(tensor, MODES["k"][0])), None
    )
    yield _row(logits, "p", "PyTorch sort", _median(lambda: torch.sort(tensor)), None)


def _median(call: Callable[[], Any]) -> float:
    """Seconds of a call."""
    times = []
    for _ in range(TURNS + 1):  # the first may compile
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))
