"""What ends a build ends it between two batches, not behind a row group or a hot range."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashtrie.builder import build as build_module
from flashtrie.builder import pipeline, plan, sort
from flashtrie.builder.build import build
from flashtrie.builder.pack import ordered_map
from flashtrie.builder.source import Source
from flashtrie.formats.errors import InputError
from tests.conftest import write_parquet

BATCHES = 300
ROWS_EACH = 10
SECONDS_EACH = 0.01


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A row group of many batches that take their time; [batches read]."""
    rows = [[i % 50, i] for i in range(BATCHES * ROWS_EACH)]
    write_parquet(tmp_path / "keys.parquet", rows)
    for name in ("_BATCH_ROWS", "_HELD_BATCH_ROWS"):
        monkeypatch.setattr(pipeline, name, ROWS_EACH)
    read, count = Source.read, [0]

    def slowly(self: Source, *arguments: Any) -> Iterator[Any]:
        for batch in read(self, *arguments):
            count[0] += 1
            time.sleep(SECONDS_EACH)
            yield batch

    monkeypatch.setattr(Source, "read", slowly)
    return count


class Interrupt:
    """Sends SIGINT to this process in the middle of a phase.

    Not at its first batch: a signal that comes as the main thread begins to wait is heeded late.
    """

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.sent = False

    def __call__(self, phase: str, done: int, total: int, unit: str, /) -> None:
        if phase == self.phase and total // 10 < done < total // 2 and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("phase", ["count", "scatter"])
def test_a_signal_ends_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: list[int], phase: str
) -> None:
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)
    progress = Interrupt(phase)
    with pytest.raises(KeyboardInterrupt):
        build([tmp_path / "keys.parquet"], tmp_path / "keys.trie", threads=1, progress=progress)
    assert progress.sent
    assert slow[0] < (BATCHES if phase == "count" else 2 * BATCHES) - BATCHES // 3
    assert os.listdir(tmp_path) == ["keys.parquet"]


def test_an_error_ends_the_row_groups_behind_it(tmp_path: Path, slow: list[int]) -> None:
    write_parquet(tmp_path / "a.parquet", [[-1]], dtype=np.int64)
    write_parquet(tmp_path / "b.parquet", [[i] for i in range(BATCHES * ROWS_EACH)])
    with pytest.raises(InputError, match=r"a\.parquet.*token id -1"):
        build([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "x.trie", threads=2)
    assert slow[0] < BATCHES // 3


def test_a_signal_ends_a_range_of_many_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One keyword many times is one range, which is sorted part by part."""
    write_parquet(tmp_path / "keys.parquet", [[1, 2, 3]] * 20_000)
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)

    def small(*arguments: Any) -> plan.BuildPlan:
        return replace(plan.plan_build(*arguments), range_bytes=20_000, buffer_bytes=50_000)

    monkeypatch.setattr(build_module, "plan_build", small)
    sort_range, parts = sort.sort_range, [0]

    def slowly(*arguments: Any) -> Any:
        parts[0] += 1
        time.sleep(SECONDS_EACH)
        return sort_range(*arguments)

    monkeypatch.setattr(sort, "sort_range", slowly)
    build([tmp_path / "keys.parquet"], tmp_path / "whole.trie", threads=1)
    all_parts, parts[0] = parts[0], 0
    assert all_parts > 100
    progress = Interrupt("sort")
    with pytest.raises(KeyboardInterrupt):
        build([tmp_path / "keys.parquet"], tmp_path / "keys.trie", threads=1, progress=progress)
    assert progress.sent
    assert parts[0] < all_parts * 3 // 4


def test_progress_is_told_for_each_batch(tmp_path: Path, slow: list[int]) -> None:
    told: dict[str, list[int]] = {}

    def progress(phase: str, done: int, total: int, unit: str, /) -> None:
        told.setdefault(phase, []).append(done)
        assert total == BATCHES * ROWS_EACH
        assert unit == "rows"

    build([tmp_path / "keys.parquet"], tmp_path / "keys.trie", threads=2, progress=progress)
    assert list(told) == ["count", "scatter", "sort"]
    for phase, done in told.items():
        assert done == sorted(done)
        assert done[-1] == BATCHES * ROWS_EACH
        assert phase == "sort" or len(done) == BATCHES


def test_skipped_rows_are_progress(tmp_path: Path) -> None:
    write_parquet(tmp_path / "keys.parquet", [[1], [], [2], []])
    told = []

    def progress(phase: str, done: int, total: int, unit: str, /) -> None:
        told.append((phase, done, total))

    build([tmp_path / "keys.parquet"], tmp_path / "k.trie", empty="skip", progress=progress)
    assert told == [("count", 4, 4), ("scatter", 2, 2), ("sort", 2, 2)]


def test_what_runs_is_told_before_it_is_waited_for() -> None:
    from concurrent.futures import ThreadPoolExecutor

    stop = threading.Event()

    def work(item: int) -> bool:
        if item == 0:
            raise ValueError
        return stop.wait(20)

    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError):
        list(ordered_map(pool, work, [0, 1, 2], 2, stop))
    assert time.monotonic() - started < 10
