"""The phases of a build, and what goes from one to the next."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from flashtrie.builder.alphabet import Alphabet, TokenCounter, alphabet_bytes
from flashtrie.builder.batches import Batch
from flashtrie.builder.concatenate import ArtifactPlan, Layout, plan_artifact, write_artifact
from flashtrie.builder.held import HeldBatch, Holder
from flashtrie.builder.levels import range_levels
from flashtrie.builder.pack import ordered_map
from flashtrie.builder.plan import BuildPlan, plan_build
from flashtrie.builder.ranges import KeptLevels, LevelStore, RangeStore, range_store
from flashtrie.builder.sample import Sample
from flashtrie.builder.scatter import encode_rows, scatter
from flashtrie.builder.sort import SortedRange, sort_parts
from flashtrie.builder.source import Source, Task
from flashtrie.builder.spill import Shelf, Spill
from flashtrie.builder.tails import Workshop
from flashtrie.formats.errors import CheckFailed, InputError
from flashtrie.formats.schema import Header
from flashtrie.formats.writer import ArtifactWriter

U32 = npt.NDArray[np.uint32]
_T = TypeVar("_T")

# Called from any thread with a phase, how much of it is done, how much there is, and the unit.
Progress = Callable[[str, int, int, str], None]

# Batches that are held are small, so that they are decoded and copied in cache.
_BATCH_ROWS, _HELD_BATCH_ROWS = 1 << 18, 1 << 16
_NO_KEYWORD: U32 = np.empty(0, np.uint32)


@dataclass(frozen=True)
class Job:
    """What is to be built from what, and when to stop instead."""

    source: Source
    plan: BuildPlan
    layout: Layout
    output: str
    tags: dict[str, str]
    vocab_size: int | None
    stop_on_conflict: bool
    min_keywords: int | None
    max_shrink: float | None
    old_keywords: int | None  # of the artifact at the output
    force: bool


class Pipeline:
    """One build; `run` it once. Counts and seconds are attributes afterwards."""

    def __init__(
        self,
        job: Job,
        pool: ThreadPoolExecutor,
        scratch: Callable[[], str],
        progress: Progress | None,
    ) -> None:
        """`scratch` makes the scratch folder: now, or once the alphabet leaves too little."""
        self._job = job
        self._pool = pool
        self._scratch = scratch
        self._plan = job.plan
        self._threads = job.plan.threads
        self._spill = self._spilling()
        self._progress = progress or (lambda phase, done, total, unit: None)
        self._lock = threading.Lock()
        self.rows = 0
        self.conflicts = 0
        self.skipped_nulls = 0
        self.skipped_empty = 0
        self.phases: dict[str, float] = {}

    def run(self) -> tuple[Header, int]:
        """Build; (header, bytes) of the artifact."""
        job = self._job
        held, sample, alphabet = self._timed("count", self._count)
        vocab_size = self._vocab_size(alphabet)
        workshop = Workshop(self._pool, self._threads, self._spill)
        with (
            closing(LevelStore(self._spill)) as levels,
            closing(Shelf(self._spill, "tails")) as shelf,
        ):
            self._make_levels(held, sample, alphabet, levels)
            plan = self._timed(
                "tails",
                lambda: plan_artifact(
                    levels,
                    len(alphabet.ids),
                    vocab_size,
                    job.layout,
                    job.tags,
                    shelf,
                    workshop,
                ),
            )
            self._check_keywords(plan.header.keywords)
            job.source.check_unchanged()
            size = self._timed("write", lambda: self._write(plan, levels, alphabet, workshop))
        return plan.header, size

    def _make_levels(
        self, held: list[HeldBatch], sample: Sample, alphabet: Alphabet, levels: LevelStore
    ) -> None:
        """Scatter and sort. The ranges and their buffers are gone afterwards."""
        ranges = self._timed("scatter", lambda: self._scatter(held, sample, alphabet))
        self._timed("sort", lambda: self._sort(ranges, levels, alphabet))

    def _timed(self, phase: str, work: Callable[[], _T]) -> _T:
        started = time.monotonic()
        result = work()
        self.phases[phase] = round(time.monotonic() - started, 3)
        return result

    def _spilling(self) -> Spill | None:
        plan = self._plan
        if not plan.spill:
            return None
        return Spill(Path(self._scratch()), plan.range_bytes, plan.buffer_bytes, plan.scratch)

    def _count(self) -> tuple[list[HeldBatch], Sample, Alphabet]:
        """Count all tokens; (the batches where they are held, a sample, the alphabet)."""
        source, plan = self._job.source, self._plan
        counter = TokenCounter(plan.dense_tokens)
        sample = Sample(source.rows, source.tokens, plan.ranges)
        holder = Holder()
        batch_rows = _BATCH_ROWS if plan.spill else _HELD_BATCH_ROWS

        def count(task: Task) -> tuple[list[HeldBatch], int]:
            batches = []
            for batch in source.read(task, batch_rows):
                counter.add(batch.tokens)
                sample.add(batch)
                with self._lock:
                    self.rows += len(batch)
                    self.skipped_nulls += batch.skipped_nulls
                    self.skipped_empty += batch.skipped_empty
                if not plan.spill and len(batch):
                    batches.append(holder.hold(batch))
            return batches, task.rows

        held: list[HeldBatch] = []
        done = 0
        for batches, rows in ordered_map(self._pool, count, source.tasks, 2 * self._threads):
            held += batches
            done += rows
            self._progress("count", done, source.rows, "rows")
        if not self.rows:
            raise InputError(
                "there is no keyword in the input",
                ", ".join(file.name for file in source.files[:3]),
                f"{source.rows:,} rows, of which {self.skipped_nulls:,} null and "
                f"{self.skipped_empty:,} empty ones were skipped",
            )
        ids, counts = counter.counts()
        self._plan_again(alphabet_bytes(ids))
        return held, sample, Alphabet.from_counts(ids, counts)

    def _plan_again(self, alphabet_bytes: int) -> None:
        """Leave room for the alphabet: more ranges, or scratch files where there were none."""
        source, plan = self._job.source, self._plan
        self._plan = plan_build(
            source.rows,
            source.tokens,
            source.has_values,
            plan.threads,
            plan.memory,
            plan.process_memory,
            alphabet_bytes,
        )
        if self._plan.spill and self._spill is None:
            self._spill = self._spilling()

    def _scatter(self, held: list[HeldBatch], sample: Sample, alphabet: Alphabet) -> RangeStore:
        """All rows, coded, to their ranges: those of `held`, which is emptied, or read again."""
        source = self._job.source
        splitters = sample.splitters(alphabet, self._plan.ranges)
        ranges = range_store(splitters.ranges, self._spill, "keywords")

        def add(batch: Batch | HeldBatch) -> int:
            if not alphabet.covers(batch.tokens):
                raise self._other_input()
            encoded = encode_rows(alphabet.entries(batch.tokens), batch.offsets, alphabet.code_of)
            ranges.add(scatter(encoded, batch.values, splitters))
            return len(batch)

        def reread(task: Task) -> int:
            return sum(add(batch) for batch in source.read(task, _BATCH_ROWS))

        done = 0
        counts: Iterable[int]
        if held:
            held.reverse()
            batches = (held.pop() for _ in range(len(held)))
            counts = ordered_map(self._pool, add, batches, self._threads)
        else:
            counts = ordered_map(self._pool, reread, source.tasks, 2 * self._threads)
        for rows in counts:
            done += rows
            self._progress("scatter", done, self.rows, "rows")
        if done != self.rows:
            raise self._other_input()
        source.check_unchanged()
        return ranges

    def _other_input(self) -> Exception:
        self._job.source.check_unchanged()  # mostly raises, and names the file
        return InputError("the input gave other rows when it was read again")

    def _sort(self, ranges: RangeStore, levels: LevelStore, alphabet: Alphabet) -> None:
        """Sort each range, then make its levels when its neighbours' nearest keywords are known."""

        def sort(r: int) -> SortedRange:
            return sort_parts(
                (data, rows, values if len(values) else None)
                for data, rows, values in ranges.take(r)
            )

        waiting: deque[Future[KeptLevels]] = deque()
        done = 0

        def keep(keys: SortedRange, before: U32, after: U32) -> KeptLevels:
            return levels.keep(range_levels(keys, before, after))

        def finish_to(most: int) -> None:
            while len(waiting) > most:
                levels.add(waiting.popleft().result())

        before = _NO_KEYWORD
        pending: SortedRange | None = None
        filled = np.flatnonzero(ranges.rows).tolist()
        try:
            for keys in ordered_map(self._pool, sort, filled, self._threads):
                self._check_conflict(keys, alphabet)
                if pending is not None:
                    after = keys.ranks(0)
                    waiting.append(self._pool.submit(keep, pending, before, after))
                    before = pending.ranks(len(pending) - 1)
                pending = keys
                finish_to(self._threads)
                done += keys.rows
                self._progress("sort", done, self.rows, "rows")
            assert pending is not None
            waiting.append(self._pool.submit(keep, pending, before, _NO_KEYWORD))
            finish_to(0)
        finally:
            for future in waiting:
                future.cancel()
            # What runs yet keeps levels in a file that is closed next.
            wait(waiting)

    def _write(
        self, plan: ArtifactPlan, levels: LevelStore, alphabet: Alphabet, workshop: Workshop
    ) -> int:
        job = self._job
        with ArtifactWriter(
            job.output, plan.header, force=job.force, threads=self._threads
        ) as writer:
            write_artifact(writer, plan, levels, alphabet.ids, workshop)
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

    def _check_conflict(self, keys: SortedRange, alphabet: Alphabet) -> None:
        self.conflicts += keys.conflicts
        if keys.conflict is not None and self._job.stop_on_conflict:
            raise InputError(
                f"keyword {alphabet.ids[keys.conflict].tolist()} has different values",
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
