"""Case 23: a build that is killed at any moment, with last night's artifact at the output.

FLASHTRIE_FAULT_ROUNDS is the number of builds a signal is sent to; a few by default.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from flashtrie.builder.scratch import OutputLock, Scratch
from flashtrie.formats.outputs import Replacement
from tests.cases.conftest import Spilling, finish, run, start, wait_for_lock

ROUNDS = int(os.environ.get("FLASHTRIE_FAULT_ROUNDS", "3"))
STARTING_SECONDS = 0.3  # until a build has read its first option
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}


class Faults:
    """Builds over an old artifact that get a signal, and what is left of them."""

    def __init__(self, spilling: Spilling, artifact: bytes, folder: Path) -> None:
        """Build once, undisturbed, for the new artifact; and again, for the seconds it takes."""
        self.old = artifact
        self._output, self._scratch = folder / "out" / "out.trie", folder / "scratch"
        self._lock = self._output.with_name("out.trie.lock")
        self._output.parent.mkdir()
        self._scratch.mkdir()
        self._words = spilling.words(self._output, self._scratch)
        assert run(*self._words).code == 0
        started = time.monotonic()
        found = run(*self._words)
        assert found.code == 0
        assert sum(found.json["phases"].values()) > 0
        self._seconds = time.monotonic() - started
        self.new = self._output.read_bytes()
        self._assert_clean()

    def at_any_moment(self, number: signal.Signals, rounds: int, seed: int) -> Counter[str]:
        """From the lock on, and as it is taken. How many ended how."""
        moments = random.Random(seed)
        ends: Counter[str] = Counter()
        for _ in range(rounds):
            running = self._start()
            if moments.random() < 0.8:
                wait_for_lock(self._output, running)
                time.sleep(moments.random() * self._seconds)
            else:
                while not self._lock.exists() and running.poll() is None:
                    pass
            running.send_signal(number)
            found = finish(running)
            # It may have been done before the signal came.
            assert found.code in (CODES[number], 0), found.stderr
            there = self._output.read_bytes()
            assert there in (self.old, self.new)
            assert there == self.new or found.code
            if number != signal.SIGKILL:
                self._assert_clean()
                assert found.stderr == ""
            ends["new" if there == self.new else "old"] += 1
        self._assert_next_build_cleans()
        return ends

    def at_the_start(self, number: signal.Signals, rounds: int, seed: int) -> Counter[str]:
        """While Python starts, before there are handlers of signals: nor is there a file yet."""
        moments = random.Random(seed)
        ends: Counter[str] = Counter()
        for _ in range(rounds):
            running = self._start()
            time.sleep(moments.random() * STARTING_SECONDS)
            running.send_signal(number)
            found = finish(running)
            # Python's own start may end with 1 where SIGINT comes before any of our code is run.
            early = ("Fatal Python error", "Could not import runpy module")
            started = not found.stderr.startswith(early)
            assert found.code in ((CODES[number], -number) if started else (1,)), found.stderr
            assert self._output.read_bytes() == self.old
            if number != signal.SIGKILL:
                self._assert_clean()
            ends["by its handler" if found.code > 0 else "by default"] += 1
        self._assert_next_build_cleans()
        return ends

    def _start(self) -> subprocess.Popen[str]:
        self._output.write_bytes(self.old)
        return start(*self._words)

    def _assert_clean(self) -> None:
        assert [path.name for path in self._output.parent.iterdir()] == ["out.trie"]
        assert list(self._scratch.iterdir()) == []

    def _assert_next_build_cleans(self) -> None:
        assert run(*self._words).code == 0
        assert self._output.read_bytes() == self.new
        self._assert_clean()


@pytest.fixture(scope="module")
def faults(spilling: Spilling, artifact: bytes, tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(spilling, artifact, tmp_path_factory.mktemp("killed"))


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_23_killed_at_any_moment(faults: Faults, number: signal.Signals) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    faults.at_any_moment(number, ROUNDS, seed)


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_23_killed_before_it_has_begun(faults: Faults, number: signal.Signals) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    faults.at_the_start(number, 2 * ROUNDS, seed)


def test_23_the_scratch_of_the_dead_is_removed_and_that_of_the_living_is_not(
    spilling: Spilling, tmp_path: Path
) -> None:
    """A build is stopped while it spills, another is killed, and a third runs beside them."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    builds: list[subprocess.Popen[str]] = []
    try:
        for i in range(2):
            builds.append(start(*spilling.words(tmp_path / f"{i}.trie", scratch)))
            end = time.monotonic() + 60
            while len(list(scratch.glob("*/levels"))) == i and time.monotonic() < end:
                time.sleep(0.002)
            builds[i].send_signal(signal.SIGSTOP)
        folders = set(scratch.iterdir())
        assert len(folders) == 2
        builds[0].kill()
        builds[0].wait()
        assert run(*spilling.words(tmp_path / "2.trie", scratch)).code == 0
        (living,) = scratch.iterdir()
        assert living in folders
        builds[1].send_signal(signal.SIGCONT)
        assert finish(builds[1]).code == 0
        assert list(scratch.iterdir()) == []
        assert (tmp_path / "1.trie").read_bytes() == (tmp_path / "2.trie").read_bytes()
    finally:
        for running in builds:
            running.kill()
            running.communicate()


MAKERS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "lock": lambda folder: OutputLock(folder / "out.trie"),
    "scratch": Scratch,
    "artifact": lambda folder: Replacement(folder / "out.trie"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("call", ["flock", "unlink", "close"])
def test_23_a_signal_as_a_file_is_made_or_removed(tmp_path, monkeypatch, make, call):
    """At the worst moments: within the calls between which nothing is known of the file."""
    module = fcntl if call == "flock" else os
    real = getattr(module, call)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.undo()
        result = real(*arguments)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(module, call, interrupted)
    before = os.listdir("/proc/self/fd")
    stopped = False
    try:
        with make(tmp_path):
            pass
    except KeyboardInterrupt:
        stopped = True
    assert stopped
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)
