"""Top-k and top-p by a stable float64 sort: the meaning of every selection, one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# A kept set may differ from the oracle's where the mass at the boundary is this near to p.
MARGIN = 1e-7


@dataclass
class Selected:
    """What one row keeps."""

    order: np.ndarray  # kept indices, by value falling, then index rising
    log_mass: float
    nan: bool
    prefix: np.ndarray  # mass share of each prefix of the k-survivors, in the order of p
    ranked: np.ndarray  # those survivors, in that order
    p: float

    @property
    def kept(self) -> set[int]:
        return {int(index) for index in self.order}


def select(
    row: Any, k: int = 0, p: float = 1.0, temperature: float = 1.0, ties: str = "index"
) -> Selected:
    x = np.asarray(row).astype(np.float64)
    nan = bool(np.isnan(x).any())
    x[np.isnan(x)] = -np.inf
    if (x == np.inf).any():
        x[x != np.inf] = -np.inf
    indices = np.flatnonzero(x > -np.inf)
    if len(indices) == 0:
        return Selected(indices, -np.inf, nan, np.zeros(0), indices, p)
    falling = indices[np.argsort(-x[indices], kind="stable")]
    top = x[falling[0]]
    if temperature == 0:
        return Selected(falling[:1], 0.0, nan, np.ones(1), falling[:1], p)
    if 0 < k < len(x) and k < len(falling):
        if ties == "index":
            falling = falling[:k]
        else:
            falling = falling[x[falling] >= x[falling[k - 1]]]
    ranked = falling
    if ties == "sort":
        ranked = falling[np.lexsort((-falling, -x[falling]))]
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.where(x[ranked] == top, 0.0, (x[ranked] - top) / temperature)
    mass = np.exp(scaled)
    prefix = np.cumsum(mass) / mass.sum()
    count = len(ranked)
    if p <= 0:
        count = 1
    elif p < 1:
        count = min(int(np.searchsorted(prefix, p, side="left")) + 1, len(ranked))
    kept = ranked[:count]
    kept = kept[np.lexsort((kept, -x[kept]))]
    return Selected(kept, float(np.log(mass[:count].sum())), nan, prefix, ranked, p)


def agrees(expected: Selected, got: Any, margin: float = MARGIN) -> bool:
    """Whether the set `got` is the oracle's, or another prefix within the margin of p."""
    got = {int(index) for index in got}
    if got == expected.kept:
        return True
    n = len(got)
    if n == 0 or n > len(expected.ranked) or not 0 < expected.p < 1:
        return False
    if got != {int(index) for index in expected.ranked[:n]}:
        return False
    before = expected.prefix[n - 2] if n > 1 else 0.0
    return bool(before < expected.p + margin and expected.prefix[n - 1] >= expected.p - margin)
