"""How runs end: exit codes, the form of errors, signals, and a stdout that nobody reads."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from flashtrie.cli import info
from flashtrie.cli.run import run
from tests.cli.conftest import command, process, trie


def test_a_usage_error_is_one_message():
    found = process("generate", "--keywords", "10")
    assert found.code == 2
    assert found.stdout == ""
    assert found.stderr == "error: Missing argument 'OUT'. See trie generate --help\n"


@pytest.mark.parametrize(
    "words",
    [
        ["fly", "--json"],
        ["generate", "--json"],
        ["generate", "out", "--keywords", "ten", "--json"],
        ["generate", "out", "--keywords", "10", "--kind", "deep", "--json"],
        ["info", "--json", "--nothing"],
        ["info", "missing.trie", "--json"],
        ["load", "missing.trie", "--json"],
        ["dump", "missing.trie", "--json"],
        ["build", "missing.parquet", "--json"],
        ["build", "a.parquet", "b.parquet", "--json"],
        ["build", "*.parquet", "--json"],
    ],
)
def test_errors_with_json_are_one_object_on_stdout(words):
    found = trie(*words, "--quiet")
    assert found.code == 2
    assert found.stderr == ""
    assert found.json["exit_code"] == 2
    assert found.json["error"].keys() == {"what", "where", "cause", "hint"}
    assert found.json["error"]["what"]


def test_no_command_shows_the_commands():
    found = trie()
    assert found.code == 2
    assert "Commands:" in found.stderr


def test_help_and_version():
    assert trie("--help").code == 0
    assert trie("build", "--help").code == 0
    assert trie("--version").stdout.startswith("flashtrie ")


def test_an_internal_error_has_a_traceback_only_on_request(monkeypatch):
    def fail(artifact):
        raise KeyError("inside")

    monkeypatch.setattr(info, "find_artifact", fail)
    found = trie("info")
    assert found.code == 2
    assert found.stderr == "error: internal error: KeyError: 'inside'. TRIE_DEBUG=1 shows where\n"
    assert "Traceback" in trie("info", TRIE_DEBUG="1").stderr


def test_memory_that_is_not_there_is_no_internal_error(monkeypatch):
    def fail(artifact):
        raise MemoryError

    monkeypatch.setattr(info, "find_artifact", fail)
    found = trie("info")
    assert found.code == 2
    assert found.stderr.startswith("error: not enough memory")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_cleanly(folder, number, code):
    words = command("generate", "keys", "--keywords", "1e9")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + 60
            while not any(folder.glob("keys/.part-*")) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.5)
            running.send_signal(number)
            assert running.wait(60) == code
            assert running.stderr
            assert "Traceback" not in running.stderr.read()
        finally:
            running.kill()
    assert list(folder.iterdir()) == []


def test_an_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(lambda: signal.getsignal(signal.SIGINT) == signal.SIG_IGN, []) == 1  # True
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    assert run(lambda: 0, []) == 0
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("verb", ["info", "dump", "verify"])
def test_a_stdout_closed_early_is_no_error(built, verb):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        found = subprocess.run(
            command(verb, built / "keywords.trie", "--quiet"),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (found.returncode, found.stderr) == (0, "")


def test_a_check_that_says_no_says_so_to_a_closed_stdout_too(built, folder):
    path = folder / "bad.trie"
    data = bytearray((built / "keywords.trie").read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        words = command("verify", path, "--quiet")
        found = subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    assert found.returncode == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_stdout_is_an_error(built, unbuffered, more):
    """However Python buffers: what is left in the buffer must not fail again at the end."""
    with open("/dev/full", "wb") as stdout:
        found = subprocess.run(
            command("info", built / "keywords.trie", *more),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert found.returncode == 2
    if not more:  # with --json the message itself goes to stdout
        assert found.stderr.count("\n") == 1
        assert "No space left" in found.stderr


def test_python_dash_m_and_the_script_are_one():
    assert process("--version").stdout == trie("--version").stdout


class Finalized:
    """Gets a signal in its finalizer, where exceptions are swallowed."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.02)


class Entered:
    """Gets a signal with a lock taken and its block not begun."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.lock.acquire()
        signal.raise_signal(signal.SIGTERM)

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_a_signal_in_a_finalizer_is_not_lost():
    def command() -> None:
        Finalized()
        time.sleep(30)

    started = time.monotonic()
    assert run(command, []) == 143
    assert time.monotonic() - started < 10


def test_a_signal_leaves_no_lock_held():
    manager = Entered()

    def command() -> None:
        with manager:
            time.sleep(30)

    started = time.monotonic()
    assert run(command, []) == 143
    assert time.monotonic() - started < 10
    assert not manager.lock.locked()


def test_a_signal_that_waited_too_long_is_forgotten():
    before = signal.getsignal(signal.SIGALRM)

    def command() -> None:
        with Entered():
            pass

    assert run(command, []) in (0, 143)
    time.sleep(0.05)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before
