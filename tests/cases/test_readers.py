"""An artifact that is replaced while it is read: who has it open goes on with the old one."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashtrie
from flashtrie.cpu.query_files import Queries, write_queries
from tests.cases.conftest import finish, power_law, run, start, write_matrix


@pytest.fixture
def nights(tmp_path: Path) -> list[Path]:
    """The keywords of two nights, some of them the same."""
    tokens = power_law(30_000, 4)
    return [
        write_matrix(tmp_path / "monday.parquet", tokens[:20_000]),
        write_matrix(tmp_path / "tuesday.parquet", tokens[10_000:, ::-1]),
    ]


@pytest.fixture
def output(nights: list[Path], tmp_path: Path) -> Path:
    """The artifact of the first night."""
    path = tmp_path / "out.trie"
    assert run("build", nights[0], "-o", path, "--quiet").code == 0
    return path


def proposals(queries: int) -> Queries:
    rng = np.random.default_rng(0)
    tokens = rng.permuted(np.tile(np.arange(400), (queries, 4, 1)), axis=2)
    return Queries(tokens, -0.5 * rng.integers(0, 40, tokens.shape).astype(np.float32))


def test_an_open_trie_goes_on_with_the_old_file(nights, output):
    """While builds replace it again and again, a thread asks; each answer is that of before."""
    tokens, logprobs = proposals(3).arrays().values()
    with flashtrie.open(output) as trie:

        def answers() -> list[bytes]:
            found = trie.search(tokens, logprobs, beam_width=50)
            flat, offsets = trie.keywords(0, len(trie))
            lookups = trie.lookup_flat(flat, offsets)
            arrays = found.key_ids, found.scores, found.tokens, flat, offsets, lookups
            return [array.tobytes() for array in arrays]

        before = answers()
        wrong, rounds, done = [], 0, threading.Event()

        def ask() -> None:
            nonlocal rounds
            while not done.is_set():
                rounds += 1
                try:
                    if answers() != before:
                        wrong.append("other answers")
                except Exception as error:
                    wrong.append(repr(error))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for night in (1, 0, 1):
                assert run("build", nights[night], "-o", output, "--force", "--quiet").code == 0
        finally:
            done.set()
            asking.join()
        assert wrong == []
        assert rounds > 3
        assert answers() == before
        with flashtrie.open(output) as new:
            assert len(new) != len(trie)
    assert run("verify", output, "--against", nights[1], "--quiet").code == 0


def test_a_running_search_goes_on_with_the_old_file(nights, output, tmp_path):
    write_queries(tmp_path / "queries.npz", proposals(400))
    words = ["search", output, "--queries", tmp_path / "queries.npz", "--bw", "200", "--quiet"]
    found = run(*words, "-o", tmp_path / "before.parquet")
    assert found.code == 0
    running = start(*words, "-o", tmp_path / "during.parquet")
    try:
        end = time.monotonic() + 60
        # It is made once the artifact is open.
        while not list(tmp_path.glob(".during.parquet.*")) and time.monotonic() < end:
            assert running.poll() is None
            time.sleep(0.001)
        running.send_signal(signal.SIGSTOP)
        assert run("build", nights[1], "-o", output, "--force", "--quiet").code == 0
        running.send_signal(signal.SIGCONT)
        assert finish(running).code == 0
    finally:
        running.kill()
        running.communicate()
    before = (tmp_path / "before.parquet").read_bytes()
    assert (tmp_path / "during.parquet").read_bytes() == before
    assert run(*words, "-o", tmp_path / "after.parquet").code == 0
    assert (tmp_path / "after.parquet").read_bytes() != before


def test_a_running_dump_goes_on_with_the_old_file(nights, output):
    """It waits for its reader, who has taken a line of it, while the artifact is replaced."""
    expected = run("dump", output, "--quiet").stdout
    running: Any = start("dump", output, "--quiet", text=False, bufsize=0)
    try:
        first = running.stdout.readline()
        assert run("build", nights[1], "-o", output, "--force", "--quiet").code == 0
        rest, complaint = running.communicate(timeout=60)
    finally:
        running.kill()
        running.communicate()
    assert (running.returncode, complaint) == (0, b"")
    assert (first + rest).decode() == expected
