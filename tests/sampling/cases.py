"""Rows that public implementations got wrong, each with the number kept and, where few, the set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FMIN = float(np.finfo(np.float32).min)


@dataclass
class Case:
    name: str
    row: Callable[[], np.ndarray]
    kept: int
    indices: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def _fill(size: int, value: float, places: dict[int, float]) -> np.ndarray:
    row = np.full(size, value, np.float32)
    for index, other in places.items():
        row[index] = other
    return row


def _noise(size: int, places: dict[int, float] | None = None) -> np.ndarray:
    row = np.random.default_rng(7).standard_normal(size).astype(np.float32)
    for index, other in (places or {}).items():
        row[index] = other
    return row


def power_law(size: int, exponent: float, seed: int = 3) -> np.ndarray:
    """log(rank^-exponent) in a fixed random order."""
    values = -exponent * np.log(np.arange(1, size + 1, dtype=np.float64))
    return np.random.default_rng(seed).permutation(values).astype(np.float32)


def _row(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def _log(*shares: float) -> np.ndarray:
    return np.log(np.array(shares, np.float64)).astype(np.float32)


def _masked() -> np.ndarray:
    row = np.full(32768, FMIN, np.float32)
    row[np.arange(20) * 1601 + 5] = np.linspace(-3, 4, 20, dtype=np.float32)
    return row


def _tiny() -> np.ndarray:
    return np.concatenate([[0.0], np.full(999, -92.1)]).astype(np.float32)


CASES = [
    Case("three equal, room for one", lambda: _row([3, 2, 2, 2, 1]), 2, (0, 1), {"k": 2}),
    Case("equal maxima", lambda: _row([5, 5, 1]), 1, (0,), {"k": 1}),
    Case(
        "three finite",
        lambda: _fill(32768, -np.inf, {9: 1.0, 700: 1.0, 32767: 2.0}),
        2,
        (32767, 9),
        {"k": 2},
    ),
    Case("uniform", lambda: np.zeros(32768, np.float32), 50, tuple(range(50)), {"k": 50}),
    Case("zeros and 1e-3", lambda: _fill(32768, 0.0, {32000: 1e-3}), 50, None, {"k": 50}),
    Case("rest is finfo.min", _masked, 20, tuple(np.arange(20)[::-1] * 1601 + 5), {"k": 20}),
    Case("one 1e9", lambda: _noise(32768, {77: 1e9}), 50, None, {"k": 50}),
    Case("one -1e30", lambda: _noise(32768, {77: -1e30}), 50, None, {"k": 50}),
    Case("power law, p", lambda: power_law(131072, 1.1), 14781, None, {"p": 0.9}),
    Case("power law, p = 0.99", lambda: power_law(32768, 1.2), 22357, None, {"p": 0.99}),
    Case("halves", lambda: _log(0.5, 0.25, 0.125, 0.125), 2, (0, 1), {"p": 0.75}),
    Case("tenths", lambda: _log(0.4, 0.3, 0.2, 0.1), 3, (0, 1, 2), {"p": 0.8}),
    Case(
        "renormalised first",
        lambda: _log(0.35, 0.25, 0.20, 0.05, 0.03, *[0.12 / 8] * 8),
        3,
        (0, 1, 2),
        {"k": 4, "p": 0.82},
    ),
    Case("p = 0", lambda: _noise(1000, {321: 9.0}), 1, (321,), {"p": 0.0}),
    Case("p = 0.9999999", lambda: _noise(32000), 32000, None, {"p": 0.9999999}),
    Case("spike", lambda: _noise(32768, {5: 12.0}), 50, None, {"k": 50}),
    Case("probabilities of 1e-40", _tiny, 1, (0,), {"p": 0.9}),
    Case("temperature 0", lambda: _row([1, 4, 4, 2]), 1, (1,), {"temperature": 0.0}),
    Case("infinite", lambda: _row([1, np.inf, 4, np.inf]), 2, (1, 3), {"p": 0.9}),
    Case("all -inf", lambda: np.full(70, -np.inf, np.float32), 0, (), {"k": 5, "p": 0.5}),
    Case("minus zero", lambda: _row([0.0, -0.0, 0.0, -0.0]), 2, (0, 1), {"k": 2}),
    Case(
        "sort keeps all copies of the k-th",
        lambda: _row([3, 2, 2, 2, 1]),
        4,
        (0, 1, 2, 3),
        {"k": 2, "ties": "sort"},
    ),
    Case(
        "sort keeps the highest indices at p",
        lambda: np.zeros(10, np.float32),
        5,
        (5, 6, 7, 8, 9),
        {"p": 0.45, "ties": "sort"},
    ),
]
