"""Exact top-k and top-p of logits on the CPU: rows over threads, each row in O(V).

`select` finds what each row keeps; the result then gives the masked logits, the candidates or a
token a row. The meaning is that of flashtrie.sampling, which checks the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashtrie.cpu import sampling_select as rows
from flashtrie.formats.cores import usable_cores

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Selection:
    """What each row of `logits` [B, V] keeps.

    `counts` int64 [B], `log_mass` float64 [B], `nan` bool [B]. `cuts` int64 [B, 6] as in
    sampling_select.
    """

    logits: Array
    temperature: Array
    cuts: Array
    log_mass: Array
    threads: int

    @property
    def counts(self) -> Array:
        """How many entries each row keeps, int64 [B]."""
        return np.asarray(self.cuts[:, rows.COUNT])

    @property
    def nan(self) -> Array:
        """Which rows hold NaN, bool [B]."""
        return np.asarray(self.cuts[:, rows.NAN] != 0)

    def mask(self, out: Array) -> None:
        """Write the kept logits to `out` [B, V] and -inf elsewhere; `out` may be the logits."""
        bits16 = out.dtype == np.uint16
        nothing = np.uint16(0xFF80) if bits16 else out.dtype.type(-np.inf)

        def work(row: int) -> None:
            kept = self._kept(row)
            values = self.logits[row, kept].copy()
            out[row] = nothing
            out[row, kept] = values

        self._each(work)

    def candidates(self, capacity: int) -> tuple[Array, Array]:
        """The kept, by value falling and index rising: indices int64 and values, [B, capacity].

        A row that keeps more than `capacity` gives its first. Unused places hold -1 and -inf.
        """
        indices = np.full((len(self.logits), capacity), -1, np.int64)
        nothing = 0xFF80 if self.logits.dtype == np.uint16 else -np.inf
        values = np.full((len(self.logits), capacity), nothing, self.logits.dtype)

        def work(row: int) -> None:
            kept = self._kept(row)
            order = np.lexsort((kept, -_widen(self.logits[row, kept])))[:capacity]
            indices[row, : len(order)] = kept[order]
            values[row, : len(order)] = self.logits[row, kept[order]]

        self._each(work)
        return indices, values

    def tokens(self, seeds: Array, positions: Array) -> tuple[Array, Array]:
        """One token a row, int64 [B], and its log-probability among the kept, float64 [B].

        The noise is a function of (seed, position, token) alone. -1 and -inf where a row keeps
        nothing.
        """
        tokens = np.full(len(self.logits), -1, np.int64)
        logprobs = np.full(len(self.logits), -np.inf, np.float64)

        def work(row: int) -> None:
            x = _widen(self.logits[row])
            cut = self.cuts[row]
            temperature = float(self.temperature[row])
            token = rows.draw_row(
                x, x.view(np.uint32), cut, temperature, int(seeds[row]), int(positions[row])
            )
            tokens[row] = token
            if token >= 0:
                value, top = float(x[token]), float(x.max(where=~np.isnan(x), initial=-np.inf))
                scaled = 0.0 if value == top else (value - top) / temperature
                logprobs[row] = scaled - self.log_mass[row]

        self._each(work)
        return tokens, logprobs

    def _kept(self, row: int) -> Array:
        kept = np.empty(int(self.counts[row]), np.int64)
        x = _widen(self.logits[row])
        rows.kept_row(x.view(np.uint32), self.cuts[row], kept)
        return kept

    def _each(self, work: Callable[[int], None]) -> None:
        _each(work, len(self.logits), self.threads)


def select(
    logits: Array,
    k: Array,
    p: Array,
    temperature: Array,
    *,
    by_sort: bool = False,
    threads: int | None = None,
) -> Selection:
    """What each row keeps; O(V) a row, and 1 MiB of scratch a thread.

    `logits` [B, V]: float32, float16, or bfloat16 as its bits in uint16; any strides. k int64, p
    and temperature float64, [B] each; k <= 0 and p >= 1 are off.
    """
    threads = threads or usable_cores()
    cuts = np.empty((len(logits), rows.COLUMNS), np.int64)
    log_mass = np.empty(len(logits), np.float64)
    scratch: list[tuple[Array, Array]] = []

    def work(row: int) -> None:
        try:
            counts, masses = scratch.pop()
        except IndexError:
            counts, masses = np.empty(rows.BINS, np.int64), np.empty(rows.BINS, np.float64)
        x = _widen(logits[row])
        log_mass[row] = rows.cut_row(
            x,
            x.view(np.uint32),
            int(k[row]),
            float(p[row]),
            float(temperature[row]),
            by_sort,
            counts,
            masses,
            cuts[row],
        )
        scratch.append((counts, masses))

    _each(work, len(logits), threads)
    return Selection(logits, temperature, cuts, log_mass, threads)


def _widen(row: Array) -> Array:
    """The row as contiguous float32; exact. bfloat16 comes as uint16."""
    if row.dtype == np.uint16:
        return (row.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(row, np.float32)


def _each(work: Callable[[int], None], count: int, threads: int) -> None:
    if threads == 1 or count == 1:
        for row in range(count):
            work(row)
        return
    with ThreadPoolExecutor(min(threads, count)) as pool:
        for _ in pool.map(work, range(count)):
            pass
