"""`build`: from Parquet to one artifact.

The stages: count the tokens, whose frequencies give the ranks; scatter the rows, coded as ranks,
to ranges; sort each range and turn it into levels; concatenate. A key set that fits --memory is
read once and stays there; a larger one is read twice, and its ranges and levels go through
scratch files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from flashtrie.builder.concatenate import Layout
from flashtrie.builder.memory import default_memory, peak_memory, process_memory
from flashtrie.builder.pipeline import Job, Pipeline, Planner
from flashtrie.builder.plan import BuildPlan, affordable_threads, plan_build
from flashtrie.builder.scratch import OutputLock, Scratch, scratch_parent
from flashtrie.builder.source import Source
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.errors import UsageError
from flashtrie.formats.header import check_tags
from flashtrie.formats.info import bits_per_keyword
from flashtrie.formats.outputs import check_output
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import (
    MAX_LOW_BITS,
    MAX_TOKEN,
    MIN_LOW_BITS,
)


@dataclass(frozen=True)
class BuildReport:
    """What a build did.

    `bytes` is the whole file; `bits_per_keyword` leaves out alphabet and values; `conflicts` are
    rows whose value lost against a smaller one of the same keyword; `phases` are seconds.
    """

    keywords: int
    rows: int
    duplicates: int
    conflicts: int
    nodes: int
    bytes: int
    bits_per_keyword: float
    seconds: float
    peak_rss_bytes: int
    output: str
    skipped_nulls: int
    skipped_empty: int
    phases: dict[str, float]


def build(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    column: str | None = None,
    values: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    nulls: str = "error",
    empty: str = "error",
    on_conflict: str = "min",
    vocab_size: int | None = None,
    memory: int | None = None,
    threads: int | None = None,
    tmp_dir: str | os.PathLike[str] | None = None,
    low_bits: int | None = None,
    tails: str = "auto",
    tags: dict[str, str] | None = None,
    min_keywords: int | None = None,
    max_shrink: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Build the artifact `output` from Parquet `inputs`: files, folders, globs or URIs.

    The options are those of `trie build`; `memory` is in bytes, `max_shrink` a fraction,
    `low_bits` None for the width that takes the least space. About 150 ns a row and core.

    Raises UsageError, InputError, OutputError or ResourceError, CheckFailed where `min_keywords`
    or `max_shrink` stops the build, and ArtifactError where `max_shrink` has no artifact to compare
    with. Nothing is written then, and what was at `output` stays.
    """
    started = time.monotonic()
    layout = _layout(low_bits, tails)
    _check_range("--threads", threads, 1, 4096)
    _check_choice("--on-conflict", on_conflict, ("min", "error"))
    _check_range("--vocab-size", vocab_size, 1, MAX_TOKEN + 1)
    _check_range("--min-keywords", min_keywords, 0, 2**63 - 1)
    _check_range("--max-shrink", max_shrink, 0, 1)
    check_tags(tags or {})
    check_output(output, force=force)
    with ExitStack() as stack:
        stack.enter_context(OutputLock(output))
        old_keywords = None if max_shrink is None else _keywords_at(output)
        source = Source.open(inputs, column, values, tokenizer, nulls, empty)
        check_output(output, force=force, reads=source.reads)
        planner = _planner(source, memory, threads)
        plan = planner(source.rows, source.tokens)
        # Registered before the pool, so that no thread is left when the scratch folder goes.
        folders = stack.enter_context(ExitStack())
        pool = ThreadPoolExecutor(plan.threads)
        stack.callback(pool.shutdown, cancel_futures=True)

        def scratch() -> str:
            return folders.enter_context(Scratch(scratch_parent(tmp_dir, output))).folder

        job = Job(
            source,
            plan,
            planner,
            layout,
            output=os.fspath(output),
            tags=tags or {},
            vocab_size=vocab_size,
            stop_on_conflict=on_conflict == "error",
            min_keywords=min_keywords,
            max_shrink=max_shrink,
            old_keywords=old_keywords,
            force=force,
        )
        pipeline = Pipeline(job, pool, scratch, progress)
        header, size = pipeline.run()
    return BuildReport(
        keywords=header.keywords,
        rows=pipeline.rows,
        duplicates=pipeline.rows - header.keywords,
        conflicts=pipeline.conflicts,
        nodes=header.nodes,
        bytes=size,
        bits_per_keyword=bits_per_keyword(header, size),
        seconds=time.monotonic() - started,
        peak_rss_bytes=peak_memory(),
        output=os.fspath(output),
        skipped_nulls=pipeline.skipped_nulls,
        skipped_empty=pipeline.skipped_empty,
        phases=pipeline.phases,
    )


def plan(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    column: str | None = None,
    values: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    threads: int | None = None,
) -> BuildPlan:
    """What `build` would do with these inputs, and about what it would take. Reads footers only."""
    _check_range("--threads", threads, 1, 4096)
    source = Source.open(inputs, column, values, tokenizer)
    return _planner(source, memory, threads)(source.rows, source.tokens)


def _keywords_at(output: str | os.PathLike[str]) -> int | None:
    """Keywords of the artifact there, None where there is none."""
    if not os.path.exists(output):
        return None
    old = open_artifact(output)
    old.close()
    return old.header.keywords


def _planner(source: Source, memory: int | None, threads: int | None) -> Planner:
    budget = default_memory() if memory is None else memory
    process = process_memory()
    chosen = threads or min(usable_cores(), affordable_threads(budget, process))

    def plan(rows: int, tokens: int, alphabet_bytes: int = 0, /) -> BuildPlan:
        has_values = source.has_values
        return plan_build(rows, tokens, has_values, chosen, budget, process, alphabet_bytes)

    return plan


def _layout(low_bits: int | None, tails: str) -> Layout:
    _check_range("--low-bits", low_bits, MIN_LOW_BITS, MAX_LOW_BITS)
    _check_choice("--tails", tails, ("auto", "implicit", "indexed"))
    return Layout(low_bits, None if tails == "auto" else tails)


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} cannot be {value!r}", hint=f"Choose from {', '.join(choices)}")


def _check_range(option: str, value: float | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise UsageError(f"{option} cannot be {value}", hint=f"Give {low} to {high}")
