"""The arithmetic of gpu/kernels/sampling_mass.cuh in NumPy: its window holds the boundary of p.

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
BINS, SPAN, EDGE, SLACK, FARTHEST = 4096, 40.0, 0.51, 2e-5, 262144.0
TAIL = BINS - 1
UNIT = 2.0**-45
COUNTED_ONE = 2.0**40
LOG2_E = np.float64(1.4426950408889634)

Floats = np.ndarray[Any, Any]


def fma(a: Floats, b: Any, c: Any) -> Floats:
    """Rounded once but for double rounding: products of two float32 are exact in float64."""
    return np.asarray(a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


def window(counts: Floats, width: np.float32, p: float) -> tuple[int, int]:
    """First and last bin in which the boundary can lie, by the counts alone."""
    depth = (np.arange(BINS, dtype=np.float32) - np.float32(EDGE)) * width
    most = np.floor(counts * np.exp2(-np.float32(LOG2_E) * depth).astype(np.float64) * COUNTED_ONE)
    most[TAIL] = 0
    reached = np.cumsum(most)
    total = reached[-1]
    low = np.float64(np.exp2(np.float32(-2 * EDGE * LOG2_E) * width))
    up, down, rest = 1 + SLACK, low * (1 - SLACK), 1 - p
    first = total - np.floor(total * np.float32(rest * up / (rest * up + p * down)))
    last = total - np.floor(total * np.float32(rest * down / (rest * down + p * up)))
    if p < 0.5:
        first = np.floor(total * np.float32(p * down / (rest * up + p * down)))
        last = np.floor(total * np.float32(p * up / (rest * down + p * up)))
    last = min(last + BINS, total)
    first = min(max(first - BINS, 1), last)
    return int(np.argmax(reached >= first)), int(np.argmax(reached >= last))


def weights(x: Floats, top: float, temperature: float) -> Floats:
    """Masses in float32, as the kernels have them but for the error of the device's ex2."""
    s = LOG2_E / temperature
    b = -s * top
    scale = np.float32(s)
    scale_low = np.float32(s - np.float64(scale))
    grid = 2.0 ** (np.floor(np.log2(abs(b) + 256)) - 21)
    shift = np.float32(np.rint(b / grid) * grid)
    value = np.maximum(x, np.float32(top - 45 * temperature))
    shifted = fma(value, scale, np.float32(12582912) + np.rint(shift))
    n = shifted - np.float32(12582912)
    f = fma(value, scale_low, fma(value, scale, shift - n))
    assert np.abs(f).max() <= 1.01
    mass = np.exp2(f) * np.exp2(n) * np.exp((b - np.float64(shift)) * np.log(2))
    return np.asarray(mass, np.float32)


def whole(terms: Floats) -> int:
    """A sum in units of 2^-45: of four neighbours in float32, of these exactly."""
    four = np.zeros((-(-len(terms) // 4), 4), np.float32)
    four.reshape(-1)[: len(terms)] = terms
    sums = (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3])
    return int(np.rint(sums.astype(np.float64) / UNIT).astype(np.int64).sum())


def keep(x: Floats, p: float, temperature: float, by_sort: bool) -> tuple[Floats, float] | None:
    """Kept indices and log_mass, as the kernels find them; None where they leave it to a search."""
    top, low = x[x > -np.inf].max(), x[x > -np.inf].min()
    with np.errstate(divide="ignore", over="ignore"):
        span = min(np.float32(top - low), np.float32(SPAN) * np.float32(temperature))
        scale = min(np.float32(TAIL - 1) / np.float32(span), np.float32(1e30))
        origin = fma(np.array(top), scale, 0.5)
        place = fma(-x, scale, origin)
    if abs(origin) >= FARTHEST:
        return None
    width = np.float32(1) / (scale * np.float32(temperature))
    inside = place < TAIL
    bins = np.floor(place[inside]).astype(np.int64)
    assert bins.min() == 0
    first, last = window(np.bincount(bins, minlength=BINS), width, p)
    mass = weights(x, float(top), temperature)
    above, listed = place < first, (place >= first) & (place < last + 1)
    kept_mass = whole(np.where(above, mass, np.float32(0))) * UNIT
    total = whole(mass) * UNIT
    exact = np.exp((x[x > -np.inf].astype(np.float64) - top) / temperature).sum()
    assert total == pytest.approx(exact, rel=3e-7)
    near = np.flatnonzero(listed)
    near = near[np.lexsort((-near if by_sort else near, -x[near]))]
    reached = kept_mass + np.cumsum(np.exp((x[near].astype(np.float64) - top) / temperature))
    # The window holds the boundary: nothing above it reaches p, and with all of it p is reached.
    assert not above.any() or kept_mass < p * total
    assert reached[-1] >= p * total * (1 - 1e-9)
    count = min(int((reached < p * total).sum()) + 1, len(near))
    return np.concatenate([np.flatnonzero(above), near[:count]]), float(np.log(reached[count - 1]))


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
                    assert log_mass == pytest.approx(expected.log_mass, abs=3e-7)


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


@pytest.mark.parametrize("offsets", [(0.02, 0.98), (0.98, 0.02)])
def test_values_at_the_edges_of_their_bins(offsets: tuple[float, float]) -> None:
    """Counts tell least where all that is above the boundary lies at one edge of its bins."""
    rng = np.random.default_rng(8)
    scale = (TAIL - 1) / SPAN
    for _ in range(30):
        bins = rng.integers(1, 400, 30001)
        border = int(rng.integers(20, 300))
        places = bins + np.where(bins < border, *offsets)
        row = (-(places - 0.5) / scale).astype(np.float32)
        row[0], row[1] = 0.0, -60.0
        # The boundary is where the offset changes, and so the error of both sides adds up.
        mass = np.exp(row.astype(np.float64))
        p = float(mass[bins < border].sum() / mass.sum()) * rng.uniform(0.998, 1.002)
        found = keep(row, p, 1.0, False)
        assert found is not None
        assert oracle.agrees(oracle.select(row, 0, p, 1.0), found[0])


def test_constants_are_those_of_the_kernels() -> None:
    text = SOURCE.read_text()
    for name, value in (
        ("MASS_BINS", BINS), ("SPAN", SPAN), ("EDGE", EDGE), ("SLACK", SLACK),
    ):  # fmt: skip
        found = re.search(rf"#define {name} ([0-9.e-]+)", text)
        assert found and float(found[1]) == value
    assert f"{FARTHEST}f" in text
    assert "SUM_ROUNDER 192.0" in text and np.spacing(192.0) == UNIT
