"""The search benchmark: full queries of an artifact, timed batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.queries import Query, QueryMaker
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.trie import Trie
from flashtrie.formats.errors import UsageError
from flashtrie.formats.progress import Progress
from flashtrie.formats.search import SearchResult, SearchStats

SECONDS = 30.0  # of drawing, and then of timing, after which a row is over

_MIN_DIFFERENT = 64  # queries, or as many as were asked for
_KEPT_BYTES = 1 << 30
_HOPELESS = 64  # queries drawn without a full one
_DRAWN_TOGETHER = 8
_WARM_UP = 3


class Engine(Protocol):
    """What is timed: a Trie, or anything that searches as one does."""

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


# Seconds of one search of a batch of queries with a beam width.
Timer = Callable[[Queries, int], float]


@dataclass(frozen=True)
class Row:
    """Figures of one beam width and batch size; milliseconds are of a batch.

    `drawn` queries gave `queries` full ones that were timed. Active beams and candidates are means
    of these, a list by step.
    """

    bw: int
    batch: int
    top_k: int
    steps: int
    drawn: int
    queries: int
    stopped_by: str  # "queries", or "time"
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    queries_per_second: float
    active_beams: list[float]
    candidates: list[float]
    speedup: float | None = None  # over the other engine
    equal: bool | None = None  # to its results, bit for bit

    def as_json(self) -> dict[str, Any]:
        """The row as the command line gives it: without what was not measured."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FullQueries:
    """Queries that keep the beam full, and what was counted in their search.

    `timed` of them are to be timed: more than there are where memory ended their number.
    """

    queries: Queries
    drawn: int
    timed: int
    stopped_by: str
    active_beams: list[float]
    candidates: list[float]


def bench(
    trie: Trie,
    *,
    beam_widths: Sequence[int],
    batches: Sequence[int],
    top_k: int = 1000,
    steps: int = 8,
    queries: int = 1000,
    seed: int = 0,
    engine: Engine | None = None,
    timer: Timer | None = None,
    against: Engine | None = None,
    progress: Progress | None = None,
) -> tuple[list[Row], Queries]:
    """A row for each beam width and batch size; then the queries of the last beam width.

    `engine` is the trie itself if left out; `timer` times it, by the clock if left out. With
    `against`, another engine searches the same batches. Raises UsageError where the artifact is
    too small for a beam width.
    """
    engine = engine or trie
    timer = timer or by_clock(engine)
    maker = QueryMaker(trie, steps, top_k, seed)
    rows = []
    for beam_width in beam_widths:
        full = draw_full(maker, engine, beam_width, steps, queries, len(trie), progress)
        for batch in batches:
            rows.append(_row(full, beam_width, batch, engine, timer, against, progress))
    return rows, full.queries


def draw_full(
    maker: QueryMaker,
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
        if len(kept) >= _MIN_DIFFERENT and len(kept) * _bytes(kept[0]) > _KEPT_BYTES:
            break
        made = [maker.draw(drawn + i) for i in range(_DRAWN_TOGETHER)]
        drawn += len(made)
        stats = SearchStats()
        batch = _stack(made)
        assert batch.tokens is not None and batch.logprobs is not None
        result = engine.search(
            batch.tokens,
            batch.logprobs,
            end_logprobs=batch.end_logprobs,
            beam_width=beam_width,
            stats=stats,
        )
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
        _stack(kept[:wanted]),
        drawn,
        len(kept[:wanted]) if stopped_by == "time" else wanted,
        stopped_by,
        np.mean(active[:wanted], axis=0).round(1).tolist(),
        np.mean(candidates[:wanted], axis=0).round(1).tolist(),
    )


def by_clock(engine: Engine) -> Timer:
    """Times an engine that answers when it is done."""

    def seconds(batch: Queries, beam_width: int) -> float:
        started = time.perf_counter()
        _search(engine, batch, beam_width)
        return time.perf_counter() - started

    return seconds


def _row(
    full: FullQueries,
    beam_width: int,
    batch: int,
    engine: Engine,
    timer: Timer,
    against: Engine | None,
    progress: Progress | None,
) -> Row:
    starts = range(0, len(full.queries), batch)
    parts = [_wrapped(full.queries, start, batch) for start in starts]
    for part in parts[:_WARM_UP]:
        timer(part, beam_width)
    seconds: list[float] = []
    stopped_by = full.stopped_by
    started = time.monotonic()
    calls = -(-full.timed // batch)
    while len(seconds) < calls:
        if seconds and time.monotonic() - started > SECONDS:
            stopped_by = "time"
            break
        seconds.append(timer(parts[len(seconds) % len(parts)], beam_width))
        if progress:
            phase = f"search B={beam_width} batch {batch}"
            progress(phase, len(seconds) * batch, calls * batch, "queries")
    milliseconds = np.array(seconds) * 1e3
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    speedup = equal = None
    if against is not None:
        speedup, equal = _compare(parts, seconds, beam_width, engine, against)
    tokens = full.queries.tokens
    assert tokens is not None
    return Row(
        bw=beam_width,
        batch=batch,
        top_k=tokens.shape[2],
        steps=tokens.shape[1],
        drawn=full.drawn,
        queries=len(seconds) * batch,
        stopped_by=stopped_by,
        mean_ms=float(milliseconds.mean()),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        queries_per_second=batch / float(np.mean(seconds)),
        active_beams=full.active_beams,
        candidates=full.candidates,
        speedup=speedup,
        equal=equal,
    )


def _compare(
    parts: Sequence[Queries],
    seconds: Sequence[float],
    beam_width: int,
    engine: Engine,
    other: Engine,
) -> tuple[float, bool]:
    """How much faster than the other engine on the same batches, and whether results are equal."""
    timer = by_clock(other)
    timer(parts[0], beam_width)
    equal = True
    theirs: list[float] = []
    started = time.monotonic()
    for part in parts[: len(seconds)]:
        if theirs and time.monotonic() - started > SECONDS:
            break
        theirs.append(timer(part, beam_width))
        equal &= same_results(_search(engine, part, beam_width), _search(other, part, beam_width))
    return float(np.mean(theirs) / np.mean(seconds)), equal


def same_results(first: SearchResult, second: SearchResult) -> bool:
    """Whether two results are equal bit for bit."""
    for name in ("offsets", "key_ids", "scores", "lengths", "token_offsets", "tokens", "values"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours is None or theirs is None:
            if ours is not theirs:
                return False
        elif ours.dtype != theirs.dtype or ours.tobytes() != theirs.tobytes():
            return False
    return True


def _search(engine: Engine, batch: Queries, beam_width: int) -> SearchResult:
    assert batch.tokens is not None and batch.logprobs is not None
    return engine.search(
        batch.tokens, batch.logprobs, beam_width=beam_width, end_logprobs=batch.end_logprobs
    )


def _stack(queries: Sequence[Query]) -> Queries:
    tokens, logprobs, end = (np.stack(arrays) for arrays in zip(*queries, strict=True))
    return Queries(tokens, logprobs, end)


def _wrapped(queries: Queries, start: int, count: int) -> Queries:
    """`count` queries from `start` on, the first ones again after the last."""
    if start + count <= len(queries):
        return queries.part(start, start + count)
    rows = np.arange(start, start + count) % len(queries)
    return Queries(**{name: array[rows] for name, array in queries.arrays().items()})


def _bytes(query: Query) -> int:
    return sum(array.nbytes for array in query)
