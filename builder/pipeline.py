"""The phases of a build, and what goes from one to the next."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from flashtrie.builder.alphabet import Alphabet, TokenCounter, alphabet_bytes
from flashtrie.builder.batches import Batch
from flashtrie.builder.concatenate import ArtifactPlan, Layout, plan_artifact, write_artifact
from flashtrie.builder.held import HeldBatch, Holder
from flashtrie.builder.levels import range_levels
from flashtrie.builder.pack import ordered_map
from flashtrie.builder.plan import BuildPlan
from flashtrie.builder.ranges import KeptLevels, LevelStore, RangeStore, range_store
from flashtrie.builder.sample import Sample
from flashtrie.builder.scatter import encode_rows, scatter
from flashtrie.builder.sort import Part, SortedRange, sort_parts
from flashtrie.builder.source import Source, Task
from flashtrie.builder.spill import Shelf, Spill
from flashtrie.builder.tails import Workshop
from flashtrie.formats.errors import CheckFailed, InputError
from flashtrie.formats.progress import Progress
from flashtrie.formats.schema import Header
from flashtrie.formats.writer import ArtifactWriter

U32 = npt.NDArray[np.uint32]
_T = TypeVar("_T")
_I = TypeVar("_I")

# Batches that are held are small, so that they are decoded and copied in cache.
_BATCH_ROWS, _HELD_BATCH_ROWS = 1 << 18, 1 << 16
_NO_KEYWORD: U32 = np.empty(0, np.uint32)


class Planner(Protocol):
    """How a build divides its work, by rows, tokens and, once it is known, bytes of alphabet."""

    def __call__(self, rows: int, tokens: int, alphabet_bytes: int = 0, /) -> BuildPlan:
        """Raises UsageError where the memory is too little."""


@dataclass(frozen=True)
class Job:
    """What is to be built from what, and when to stop instead."""

    source: Source
    plan: BuildPlan  # by the footers
    planner: Planner
    layout: Layout
    output: str
    tags: dict[str, str]
    vocab_size: int | None
    stop_on_conflict: bool
    min_keywords: int | None
    max_shrink: float | None
    old_keywords: int | None  # of the artifact at the output
    force: bool


class Abandoned(Exception):
    """Ends what runs yet when the build has ended already. Nobody sees it."""


class Pipeline:
    """One build; `run` it once. Counts and seconds are attributes afterwards."""

    def __init__(
        self,
        job: Job,
        pool: ThreadPoolExecutor,
        scratch: Callable[[], str],
        progress: Progress | None,
    ) -> None:
        """`scratch` makes the scratch folder: now, or once what was counted leaves too little."""
        self._job = job
        self._pool = pool
        self._scratch = scratch
        self._plan = job.plan
        self._threads = self._plan.threads
        self._folder = scratch() if self._plan.spill else None
        self._spill: Spill | None = None
        self._progress = progress
        self._done: dict[str, int] = {}  # rows, by phase
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.rows = 0
        self.tokens = 0
        self.conflicts = 0
        self.skipped_nulls = 0
        self.skipped_empty = 0
        self.phases: dict[str, float] = {}

    def run(self) -> tuple[Header, int]:
        """Build; (header, bytes) of the artifact."""
        try:
            return self._run()
        except BaseException:
            self._stop.set()
            raise

    def _run(self) -> tuple[Header, int]:
        job = self._job
        held, sample, alphabet = self._timed("count", self._count)
        vocab_size = self._vocab_size(alphabet)
        workshop = Workshop(self._pool, self._threads, self._spill)
        ranges = self._timed("scatter", self._scatter, held, sample, alphabet)
        ids = alphabet.ids
        del alphabet  # its way to the codes takes more than all else that is still held
        with (
            closing(LevelStore(self._spill)) as levels,
            closing(Shelf(self._spill, "tails")) as shelf,
        ):
            self._timed("sort", self._sort, ranges, levels, ids)
            del ranges  # with their buffers
            plan = self._timed(
                "tails",
                plan_artifact,
                *(levels, len(ids), vocab_size, job.layout, job.tags, shelf, workshop),
            )
            self._check_keywords(plan.header.keywords)
            job.source.check_unchanged()
            size = self._timed("write", self._write, plan, levels, ids, workshop)
        return plan.header, size

    def _timed(self, phase: str, work: Callable[..., _T], *arguments: Any) -> _T:
        started = time.monotonic()
        result = work(*arguments)
        self.phases[phase] = round(time.monotonic() - started, 3)
        return result

    def _advance(self, phase: str, rows: int, total: int) -> None:
        """Tell that so many rows more are done, or raise where the build has ended. Any thread."""
        if self._stop.is_set():
            raise Abandoned
        with self._lock:
            self._done[phase] = done = self._done.get(phase, 0) + rows
            if self._progress:
                self._progress(phase, done, total, "rows")

    def _count(self) -> tuple[Holder, Sample, Alphabet]:
        """Count all tokens; (the batches, if they are held, a sample, the alphabet)."""
        source, plan = self._job.source, self._plan
        counter = TokenCounter(plan.dense_tokens)
        sample = Sample(source.rows, source.tokens, plan.ranges)
        holder = Holder()
        if plan.spill:
            holder.drop()
        batch_rows = _BATCH_ROWS if plan.spill else _HELD_BATCH_ROWS

        def seen(batch: Batch) -> None:
            rows = len(batch) + batch.skipped_nulls + batch.skipped_empty
            self._advance("count", rows, source.rows)

        def count(task: Task) -> None:
            for batch in source.read(task, batch_rows, seen):
                counter.add(batch.tokens)
                sample.add(batch)
                with self._lock:
                    self.rows += len(batch)
                    self.tokens += len(batch.tokens)
                    self.skipped_nulls += batch.skipped_nulls
                    self.skipped_empty += batch.skipped_empty
                    self._check_room(holder)
                if len(batch):
                    holder.hold(batch)

        for _ in self._each(count, source.tasks, 2 * self._threads):
            pass
        if not self.rows:
            raise InputError(
                "there is no keyword in the input",
                ", ".join(file.name for file in source.files[:3]),
                f"{source.rows:,} rows, of which {self.skipped_nulls:,} null and "
                f"{self.skipped_empty:,} empty ones were skipped",
            )
        ids, counts = counter.counts()
        self._plan_again(alphabet_bytes(ids))
        return holder, sample, Alphabet.from_counts(ids, counts)

    def _check_room(self, holder: Holder) -> None:
        """Hold no more where there are more tokens than were planned for, as there may be of text.

        They are read again, then, and go to scratch files.
        """
        job = self._job
        if self.tokens > self._plan.tokens and not holder.dropped:
            if job.planner(job.source.rows, self.tokens).spill:
                holder.drop()

    def _plan_again(self, alphabet_bytes: int) -> None:
        """By what was counted, with room for the alphabet: scratch files may be needed only now."""
        self._plan = plan = self._job.planner(self.rows, self.tokens, alphabet_bytes)
        if plan.spill:
            folder = Path(self._folder or self._scratch())
            self._spill = Spill(folder, plan.range_bytes, plan.buffer_bytes, plan.scratch)

    def _each(
        self, work: Callable[[_I], _T], items: Iterator[_I] | Sequence[_I], ahead: int
    ) -> Iterator[_T]:
        """The work of each item, in order; what runs yet ends soon where something else ends it."""
        return ordered_map(self._pool, work, items, ahead, self._stop)

    def _scatter(self, holder: Holder, sample: Sample, alphabet: Alphabet) -> RangeStore:
        """All rows, coded, to their ranges: those that are held, or read again."""
        source = self._job.source
        splitters = sample.splitters(alphabet, self._plan.ranges)
        ranges = range_store(splitters.ranges, self._spill, "keywords")

        def add(batch: Batch | HeldBatch) -> None:
            if not alphabet.covers(batch.tokens):
                raise self._other_input()
            encoded = encode_rows(alphabet.entries(batch.tokens), batch.offsets, alphabet.code_of)
            ranges.add(scatter(encoded, batch.values, splitters))

        def seen(batch: Batch | HeldBatch) -> None:
            self._advance("scatter", len(batch), self.rows)

        def add_held(batch: HeldBatch) -> None:
            seen(batch)
            add(batch)

        def reread(task: Task) -> None:
            for batch in source.read(task, _BATCH_ROWS, seen):
                add(batch)

        if holder.dropped:
            work = self._each(reread, source.tasks, 2 * self._threads)
        else:
            work = self._each(add_held, holder.take(), self._threads)
        for _ in work:
            pass
        if self._done.get("scatter", 0) != self.rows:
            raise self._other_input()
        source.check_unchanged()
        return ranges

    def _other_input(self) -> Exception:
        self._job.source.check_unchanged()  # mostly raises, and names the file
        return InputError("the input gave other rows when it was read again")

    def _sort(self, ranges: RangeStore, levels: LevelStore, ids: U32) -> None:
        """Sort each range, then make its levels when its neighbours' nearest keywords are known."""

        def parts(r: int) -> Iterator[Part]:
            for data, rows, values in ranges.take(r):
                yield data, rows, values if len(values) else None
                self._advance("sort", rows, self.rows)

        def sort(r: int) -> SortedRange:
            return sort_parts(parts(r))

        waiting: deque[Future[KeptLevels]] = deque()

        def keep(keys: SortedRange, before: U32, after: U32) -> KeptLevels:
            return levels.keep(range_levels(keys, before, after))

        def finish_to(most: int) -> None:
            while len(waiting) > most:
                levels.add(waiting.popleft().result())

        before = _NO_KEYWORD
        pending: SortedRange | None = None
        filled = np.flatnonzero(ranges.rows).tolist()
        try:
            for keys in self._each(sort, filled, self._threads):
                self._check_conflict(keys, ids)
                if pending is not None:
                    after = keys.ranks(0)
                    waiting.append(self._pool.submit(keep, pending, before, after))
                    before = pending.ranks(len(pending) - 1)
                pending = keys
                finish_to(self._threads)
            assert pending is not None
            waiting.append(self._pool.submit(keep, pending, before, _NO_KEYWORD))
            finish_to(0)
        except BaseException:
            self._stop.set()
            raise
        finally:
            for future in waiting:
                future.cancel()
            # What runs yet keeps levels in a file that is closed next.
            wait(waiting)

    def _write(self, plan: ArtifactPlan, levels: LevelStore, ids: U32, workshop: Workshop) -> int:
        job = self._job
        with ArtifactWriter(
            job.output, plan.header, force=job.force, threads=self._threads
        ) as writer:
            write_artifact(writer, plan, levels, ids, workshop)
            job.source.check_unchanged()
            writer.commit()
        return writer.bytes

    def _vocab_size(self, alphabet: Alphabet) -> int:
        largest = int(alphabet.ids.max())
        given = self._job.vocab_size
        if given is not None and largest >= given:
            raise InputError(
                f"token {largest} is not below the vocabulary size {given}",
                hint="Give the right --vocab-size, or leave it out",
            )
        return given or largest + 1

    def _check_conflict(self, keys: SortedRange, ids: U32) -> None:
        self.conflicts += keys.conflicts
        if keys.conflict is not None and self._job.stop_on_conflict:
            raise InputError(
                f"keyword {ids[keys.conflict].tolist()} has different values",
                hint="--on-conflict min keeps the smallest of them",
            )

    def _check_keywords(self, keywords: int) -> None:
        """Stop before anything is written where the key set is smaller than it may be."""
        job = self._job
        if job.min_keywords is not None and keywords < job.min_keywords:
            raise CheckFailed(
                f"{keywords:,} keywords, fewer than --min-keywords {job.min_keywords:,}",
                job.output,
                hint="Nothing was written",
            )
        if job.max_shrink is None or job.old_keywords is None:
            return
        # A little more than the share, which as a binary fraction may be a little less.
        if job.old_keywords - keywords > job.old_keywords * job.max_shrink * (1 + 1e-9):
            raise CheckFailed(
                f"{keywords:,} keywords, more than {job.max_shrink:.1%} below the "
                f"{job.old_keywords:,} of the artifact there",
                job.output,
                hint="It was not replaced. Give a larger --max-shrink if this is right",
            )
