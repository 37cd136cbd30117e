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
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from flashtrie.builder.scratch import OutputLock, Scratch
from flashtrie.formats.outputs import Replacement
from tests.cases.conftest import Spilling, finish, run, start, wait_for_lock

ROUNDS = int(os.environ.get("FLASHTRIE_FAULT_ROUNDS", "3"))
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}


@pytest.fixture(scope="module")
def undisturbed(spilling, tmp_path_factory):
    """The artifact of an undisturbed build, and the seconds of a second one."""
    folder = tmp_path_factory.mktemp("undisturbed")
    words = spilling.words(folder / "out.trie", folder)
    assert run(*words).code == 0
    started = time.monotonic()
    found = run(*words)
    assert found.code == 0
    assert sum(found.json["phases"].values()) > 0
    assert sorted(path.name for path in folder.iterdir()) == ["out.trie"]
    return (folder / "out.trie").read_bytes(), time.monotonic() - started


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_23_killed_at_any_moment(
    spilling: Spilling,
    artifact: bytes,
    undisturbed: tuple[bytes, float],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    new, seconds = undisturbed
    output, scratch = tmp_path / "out" / "out.trie", tmp_path / "scratch"
    lock = output.with_name("out.trie.lock")
    output.parent.mkdir()
    scratch.mkdir()
    words = spilling.words(output, scratch)
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    print("seed", seed)
    for _ in range(ROUNDS):
        output.write_bytes(artifact)
        running = start(*words)
        if moments.random() < 0.8:
            wait_for_lock(output, running)
            time.sleep(moments.random() * seconds)
        else:  # as the lock is taken
            while not lock.exists() and running.poll() is None:
                pass
        running.send_signal(number)
        found = finish(running)
        # It may have been done before the signal came.
        assert found.code in (CODES[number], 0), found.stderr
        there = output.read_bytes()
        assert there in (artifact, new)
        assert there == new or found.code
        if number != signal.SIGKILL:
            assert [path.name for path in output.parent.iterdir()] == ["out.trie"]
            assert list(scratch.iterdir()) == []
            assert found.stderr == ""
    assert run(*words).code == 0
    assert output.read_bytes() == new
    assert [path.name for path in output.parent.iterdir()] == ["out.trie"]
    assert list(scratch.iterdir()) == []


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
