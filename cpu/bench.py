"""The search benchmark: full queries of an artifact, timed batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.full_queries import Drawer, Engine, FullQueries, draw_full, search_batch
from flashtrie.cpu.queries import QueryMaker
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.trie import Trie
from flashtrie.formats.progress import Progress
from flashtrie.formats.search import SearchResult

SECONDS = 30.0  # of timing, after which a row is over

_WARM_UP = 3
_SECTOR_BYTES = 32

Floats = npt.NDArray[np.float64]


class Timer(Protocol):
    """Times searches of batches that take turns."""

    def __call__(
        self, parts: Sequence[Queries], beam_width: int, calls: int, over: Callable[[int], bool]
    ) -> Floats:
        """Seconds of `calls` searches, or of fewer: `over` of their number is asked in between."""


class Traffic(Protocol):
    """Counts what a search reads, and knows how fast the device reads at random places."""

    sectors_per_second: float  # of 32 bytes each

    def bytes_touched(self, parts: Sequence[Queries], beam_width: int) -> float:
        """Bytes of the trie that the search of a batch reads, each counted once: the mean."""


@dataclass(frozen=True)
class Row:
    """Figures of one beam width and batch size; milliseconds are of a batch.

    `drawn` queries gave the full ones of which `queries` were timed. Active beams and candidates
    are means of these, a list by step.
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
    bytes_touched: float | None = None  # by a batch
    random_access_share: float | None = None  # of what the device reads at random places
    speedup: float | None = None  # over the other engine
    equal: bool | None = None  # to its results, bit for bit

    def as_json(self) -> dict[str, Any]:
        """The row as the command line gives it: without what was not measured."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def bench(
    trie: Trie,
    *,
    beam_widths: Sequence[int],
    batches: Sequence[int],
    top_k: int = 1000,
    steps: int = 8,
    queries: int = 1000,
    different: int | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    timer: Timer | None = None,
    traffic: Traffic | None = None,
    against: Engine | None = None,
    progress: Progress | None = None,
) -> tuple[list[Row], Queries]:
    """A row for each beam width and batch size; then the queries of the last beam width.

    `engine` is the trie itself if left out; `timer` times it, by the clock if left out. Of
    `queries`, at most `different` are drawn, and take turns. With `against`, another engine
    searches the same batches. Raises UsageError where the artifact is too small for a beam width.
    """
    engine = engine or trie
    timer = timer or by_clock(engine)
    drawer = Drawer(QueryMaker(trie, steps, top_k, seed))
    wanted = min(queries, different or queries)
    rows = []
    for beam_width in beam_widths:
        full = draw_full(drawer, engine, beam_width, steps, wanted, len(trie), progress)
        for batch in batches:
            rows.append(
                measure(
                    full,
                    beam_width,
                    batch,
                    queries,
                    engine,
                    timer=timer,
                    traffic=traffic,
                    against=against,
                    progress=progress,
                )
            )
    return rows, full.queries


def measure(
    full: FullQueries,
    beam_width: int,
    batch: int,
    queries: int,
    engine: Engine,
    *,
    timer: Timer,
    traffic: Traffic | None = None,
    against: Engine | None = None,
    progress: Progress | None = None,
) -> Row:
    """The row of a beam width and batch size: `queries` searches of full queries, in turn."""
    parts = [_wrapped(full.queries, i, batch) for i in range(0, len(full.queries), batch)]
    timed = queries if full.stopped_by == "queries" else full.timed
    row = _times(full, parts, timed, beam_width, timer, progress)
    row |= _traffic(parts, beam_width, row["mean_ms"], traffic)
    row |= _compare(parts, beam_width, row["mean_ms"], engine, against)
    return Row(**row)


def by_clock(engine: Engine) -> Timer:
    """Times an engine that answers when it is done."""

    def times(
        parts: Sequence[Queries], beam_width: int, calls: int, over: Callable[[int], bool]
    ) -> Floats:
        for part in parts[:_WARM_UP]:
            search_batch(engine, part, beam_width)
        seconds: list[float] = []
        while len(seconds) < calls and not over(len(seconds)):
            part = parts[len(seconds) % len(parts)]
            started = time.perf_counter()
            search_batch(engine, part, beam_width)
            seconds.append(time.perf_counter() - started)
        return np.array(seconds)

    return times


def _times(
    full: FullQueries,
    parts: Sequence[Queries],
    timed: int,
    beam_width: int,
    timer: Timer,
    progress: Progress | None,
) -> dict[str, Any]:
    """The fields of a row, without what is read and compared."""
    batch = len(parts[0])
    calls = -(-timed // batch)
    over = _Watch(f"search B={beam_width} batch {batch}", batch, calls, progress)
    milliseconds = timer(parts, beam_width, calls, over) * 1e3
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99]).tolist()
    assert full.queries.tokens is not None
    _, steps, top_k = full.queries.tokens.shape
    return {
        "bw": beam_width,
        "batch": batch,
        "top_k": top_k,
        "steps": steps,
        "drawn": full.drawn,
        "queries": len(milliseconds) * batch,
        "stopped_by": "time" if len(milliseconds) < calls else full.stopped_by,
        "mean_ms": float(milliseconds.mean()),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "queries_per_second": batch / float(milliseconds.mean()) * 1e3,
        "active_beams": full.active_beams,
        "candidates": full.candidates,
    }


class _Watch:
    """Says when the time for a row is over, and tells the progress."""

    def __init__(self, phase: str, batch: int, calls: int, progress: Progress | None) -> None:
        self._phase = phase
        self._batch = batch
        self._calls = calls
        self._progress = progress
        self._started = 0.0

    def __call__(self, done: int) -> bool:
        if done == 0:
            self._started = time.monotonic()
        if self._progress:
            total = self._calls * self._batch
            self._progress(self._phase, done * self._batch, total, "queries")
        return done > 0 and time.monotonic() - self._started > SECONDS


def _traffic(
    parts: Sequence[Queries], beam_width: int, mean_ms: float, traffic: Traffic | None
) -> dict[str, Any]:
    if traffic is None:
        return {}
    touched = traffic.bytes_touched(parts, beam_width)
    rate = touched / _SECTOR_BYTES / (mean_ms * 1e-3)
    share = rate / traffic.sectors_per_second
    return {"bytes_touched": touched, "random_access_share": share}


def _compare(
    parts: Sequence[Queries], beam_width: int, mean_ms: float, engine: Engine, other: Engine | None
) -> dict[str, Any]:
    """How much faster than the other engine on the same batches, and whether results are equal."""
    if other is None:
        return {}
    search_batch(other, parts[0], beam_width)
    equal = True
    theirs: list[float] = []
    begun = time.monotonic()
    for part in parts:
        if theirs and time.monotonic() - begun > SECONDS:
            break
        started = time.perf_counter()
        expected = search_batch(other, part, beam_width)
        theirs.append(time.perf_counter() - started)
        equal &= same_results(search_batch(engine, part, beam_width), expected)
    return {"speedup": float(np.mean(theirs)) * 1e3 / mean_ms, "equal": equal}


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


def _wrapped(queries: Queries, start: int, count: int) -> Queries:
    """`count` queries from `start` on, the first ones again after the last."""
    if start + count <= len(queries):
        return queries.part(start, start + count)
    rows = np.arange(start, start + count) % len(queries)
    return Queries(**{name: array[rows] for name, array in queries.arrays().items()})
