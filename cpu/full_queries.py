"""Queries that keep the beam full: the ones that are timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.queries import Query, QueryMaker
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.threads import Workers
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.errors import UsageError
from flashtrie.formats.progress import Progress
from flashtrie.formats.search import SearchResult, SearchStats

SECONDS = 30.0  # of drawing, after which it is over

_MIN_DIFFERENT = 64  # queries, or as many as were asked for
_KEPT_BYTES = 1 << 30
_HOPELESS = 64  # queries drawn without a full one
_DRAWN_TOGETHER = 8


class Engine(Protocol):
    """What searches: a Trie, or anything that searches as one does."""

    def search(
        self,
        tokens: npt.NDArray[Any],
        logprobs: npt.NDArray[Any],
        *,
        beam_width: int = ...,
        end_logprobs: npt.NDArray[Any] | None = ...,
        stats: SearchStats | None = ...,
    ) -> SearchResult:
        """Search a batch."""


@dataclass(frozen=True)
class FullQueries:
    """Queries that keep the beam full, and what was counted in their search.

    `timed` of them are to be timed: more than there are where memory ended their number.
    """

    queries: Queries
    drawn: int
    timed: int
    stopped_by: str  # "queries", or "time"
    active_beams: list[float]
    candidates: list[float]


class Drawer:
    """Draws with threads, and keeps what it drew for the next beam width."""

    def __init__(self, maker: QueryMaker) -> None:
        """Nothing is drawn yet."""
        self._maker = maker
        self._kept: dict[int, Query] = {}

    def draw(self, first: int, count: int) -> list[Query]:
        """The queries from number `first` on."""
        numbers = range(first, first + count)
        made = [self._kept.get(number) for number in numbers]
        missing = [i for i, query in enumerate(made) if query is None]

        def draw(i: int) -> None:
            made[missing[i]] = self._maker.draw(numbers[missing[i]])

        workers = Workers()
        try:
            workers.run(draw, len(missing), usable_cores())
        finally:
            workers.close()
        found = [query for query in made if query is not None]
        if len(self._kept) * query_bytes(found[0]) < _KEPT_BYTES:
            self._kept |= zip(numbers, found, strict=True)
        return found


def draw_full(
    drawer: Drawer,
    engine: Engine,
    beam_width: int,
    steps: int,
    wanted: int,
    keywords: int,
    progress: Progress | None = None,
) -> FullQueries:
    """Draw until `wanted` queries are full, or for 30 s, or until memory for them is spent.

    A query is full when steps 2 to ceil(T / 2) + 1 each keep B beams, and B results come back.
    Raises UsageError where none is.
    """
    full_steps = slice(1, min(-(-steps // 2) + 1, steps))
    kept: list[Query] = []
    active, candidates = [], []
    drawn = 0
    best = 0
    stopped_by = "queries"
    started = time.monotonic()
    while len(kept) < wanted:
        if drawn and time.monotonic() - started > SECONDS:
            stopped_by = "time"
            break
        if keywords < beam_width or (drawn >= _HOPELESS and not kept):
            break
        if len(kept) >= _MIN_DIFFERENT and len(kept) * query_bytes(kept[0]) > _KEPT_BYTES:
            break
        made = drawer.draw(drawn, _DRAWN_TOGETHER)
        drawn += len(made)
        stats = SearchStats()
        result = search_batch(engine, stack(made), beam_width, stats)
        if drawn == len(made):
            started = time.monotonic()  # the first search may have compiled
        results = np.diff(result.offsets)
        least = stats.active_beams[:, full_steps].min(axis=1, initial=beam_width)
        best = max(best, int(np.minimum(least, results).max()))
        for i in np.flatnonzero((least == beam_width) & (results == beam_width)):
            kept.append(made[i])
            active.append(stats.active_beams[i])
            candidates.append(stats.candidates[i])
        if progress:
            progress(f"draw B={beam_width}", min(len(kept), wanted), wanted, "queries")
    if not kept:
        raise UsageError(
            f"the artifact is too small for beam width {beam_width}",
            cause=f"it has {keywords:,} keywords; none of {drawn} queries drawn fills more than "
            f"{best} beams",
            hint="Take a smaller --bw, or an artifact with more keywords",
        )
    return FullQueries(
        stack(kept[:wanted]),
        drawn,
        len(kept[:wanted]) if stopped_by == "time" else wanted,
        stopped_by,
        np.mean(active[:wanted], axis=0).round(1).tolist(),
        np.mean(candidates[:wanted], axis=0).round(1).tolist(),
    )


def search_batch(
    engine: Engine, batch: Queries, beam_width: int, stats: SearchStats | None = None
) -> SearchResult:
    """Search queries as they were drawn."""
    assert batch.tokens is not None and batch.logprobs is not None
    return engine.search(
        batch.tokens,
        batch.logprobs,
        end_logprobs=batch.end_logprobs,
        beam_width=beam_width,
        stats=stats,
    )


def stack(queries: Sequence[Query]) -> Queries:
    """Queries of equal sizes as a batch."""
    tokens, logprobs, end = (np.stack(arrays) for arrays in zip(*queries, strict=True))
    return Queries(tokens, logprobs, end)


def query_bytes(query: Query) -> int:
    """Memory of one query."""
    return sum(array.nbytes for array in query)
