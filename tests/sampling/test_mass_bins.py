"""The arithmetic of gpu/kernels/sampling_mass.cuh in NumPy: its bins hold the boundary of p.

No GPU is needed to know that the method is exact; tests/sampling/test_top_p.py says that the
kernels are the method.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sampling import oracle
from tests.sampling.test_properties import KINDS, make_row

SOURCE = Path(__file__).parents[2] / "gpu/kernels/sampling_mass.cuh"
BINS, SPAN, PART_ONE, LOWERED, FARTHEST = 4096, 40.0, 65536.0, 0.03125, 262144.0

Floats = np.ndarray[Any, Any]


def fma(a: Floats, b: Any, c: Any) -> Floats:
    """Rounded once but for double rounding: products of two float32 are exact in float64."""
    return np.asarray(a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


def keep(x: Floats, p: float, temperature: float, by_sort: bool) -> tuple[Floats, float] | None:
    """Kept indices and log_mass, as the kernels find them; None where they leave it to a search."""
    top, low = float(x[x > -np.inf].max()), float(x[x > -np.inf].min())
    with np.errstate(divide="ignore"):
        wide = np.float64(BINS - 2) / min(top - low, SPAN * temperature)
    scale = np.float32(min(wide, 1e30))
    top_place = top * float(scale)
    if abs(top_place) >= FARTHEST:
        return None
    origin = np.float32(top_place + 0.5)
    lowered = np.float32(origin + np.float32(LOWERED))
    per_bin = 1.0 / (float(scale) * temperature)
    with np.errstate(over="ignore"):
        place = fma(-x, scale, origin)
    indices = np.flatnonzero(place < BINS - 1)
    bins = np.floor(place[indices]).astype(np.int64)
    f = fma(-x[indices], scale, lowered - bins.astype(np.float32))
    g = f * np.float32(per_bin)
    slope = fma(g, np.float32(0.16666667), np.float32(-0.5))
    u = f * fma(g, slope, np.float32(1.0))
    parts = np.rint(u.astype(np.float64) * PART_ONE)
    # What the sums of a part of a row rest on: they are not negative, and stay below 2^32.
    assert bins.min() == 0 and parts.min() >= 0 and parts.max() * 49152 < 2**32
    counts = np.bincount(bins, minlength=BINS)
    sums = np.bincount(bins, parts, BINS)
    edges = (lowered - np.arange(BINS, dtype=np.float32)).astype(np.float64)
    bits = 60 - len(x).bit_length()
    inside = counts - per_bin * sums / PART_ONE
    masses = np.floor(np.exp((edges - top_place) * per_bin) * inside * 2.0**bits).astype(np.int64)
    reached = np.cumsum(masses)
    total = float(reached[-1]) * 2.0**-bits
    exact = np.exp((x[x > -np.inf].astype(np.float64) - top) / temperature).sum()
    assert total == pytest.approx(exact, rel=8e-8)
    target = p * total
    bin = int(np.argmax(reached * 2.0**-bits >= target))
    base = float(reached[bin] - masses[bin]) * 2.0**-bits
    near = indices[bins == bin]
    near = near[np.lexsort((-near if by_sort else near, -x[near]))]
    mass = base + np.cumsum(np.exp((x[near].astype(np.float64) - top) / temperature))
    count = min(int((mass < target).sum()) + 1, len(near))
    kept = np.concatenate([indices[bins < bin], near[:count]])
    return kept, float(np.log(mass[count - 1]))


@pytest.mark.parametrize("size", [4097, 20011])
@pytest.mark.parametrize("kind", KINDS)
def test_the_method_is_exact(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for dtype in (np.float32, np.float16):
        for shift in (0.0, -17.5, 300.0):
            row = (make_row(kind, size, rng) + np.float32(shift)).astype(dtype).astype(np.float32)
            if kind == "tiny" or row[row > -np.inf].min() == row.max():
                continue  # left to the pivot search
            for p in (1e-9, 0.1, 0.5, 0.9, 0.9999, 1 - 1e-9):
                temperature = float(rng.choice([0.1, 0.7, 1.0, 2.5]))
                by_sort = bool(rng.random() < 0.3)
                found = keep(row, p, temperature, by_sort)
                if found is None:
                    continue
                kept, log_mass = found
                ties = "sort" if by_sort else "index"
                expected = oracle.select(row, 0, p, temperature, ties)
                assert oracle.agrees(expected, kept), (p, temperature, ties, len(kept))
                if len(kept) == len(expected.order):
                    assert log_mass == pytest.approx(expected.log_mass, abs=1e-7)


def test_few_distinct_values() -> None:
    """Errors of equal values add up, where those of different ones cancel."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        values = np.float32(rng.uniform(-14, 0, 3))
        row = rng.choice(values, 9001, p=[0.8, 0.19, 0.01])
        row[0] = 60.0 if rng.random() < 0.3 else values.max()
        p, temperature = float(rng.random()), float(rng.choice([1.0, 0.3]))
        found = keep(row, p, temperature, False)
        assert found is not None
        kept, _ = found
        assert oracle.agrees(oracle.select(row, 0, p, temperature), kept)


def test_constants_are_those_of_the_kernels() -> None:
    text = SOURCE.read_text()
    for name, value in (("MASS_BINS", BINS), ("SPAN", SPAN), ("PART_ONE", PART_ONE)):
        found = re.search(rf"#define {name} ([0-9.]+)", text)
        assert found and float(found[1]) == value
    assert f"{LOWERED}f" in text and f"{FARTHEST}" in text
