"""Key sets of the format tests: few keywords, all sections filled."""

from __future__ import annotations

import numpy as np

from tests.reference_builder import Row

TINY: list[Row] = [((7,), None), ((7, 9), None), ((7, 9, 9), None), ((3, 1, 4, 1, 5), None)]


def smallest(rows: list[Row]) -> dict[tuple[int, ...], int | None]:
    """The distinct keywords, each with the smallest of its values."""
    result: dict[tuple[int, ...], int | None] = {}
    for tokens, value in sorted(rows, key=lambda row: row[1] or 0):
        result.setdefault(tuple(tokens), value)
    return result


def mixed(rows: int = 3000, vocab: int = 3000, longest: int = 9, seed: int = 0) -> list[Row]:
    """Rows with duplicates, shared prefixes, tails that repeat, high parts, and values."""
    rng = np.random.default_rng(seed)
    result: list[Row] = []
    for _ in range(rows):
        tokens = (rng.zipf(1.3, rng.integers(1, longest + 1)) % vocab).tolist()
        result.append((tuple(tokens), int(rng.integers(-50, 1000))))
    return result
