"""Cases 24 and 27: two builds at once, places where nothing can be kept, and a reader that left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flashtrie
from tests.cases.conftest import (
    environment,
    finish,
    power_law,
    run,
    start,
    wait_for_lock,
    write_matrix,
)
from tests.cli.conftest import command

PACKAGE = Path(flashtrie.__file__).parent


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_matrix(tmp_path / "keywords.parquet", power_law(1000, 3))


def test_24_two_builds_at_once_with_a_cold_cache(source, tmp_path):
    """Nor does a third harm them, which is killed while it compiles."""
    settings = {"env": environment(XDG_CACHE_HOME=str(tmp_path / "cache"), NUMBA_CACHE_DIR="")}
    killed = start("build", source, "-o", tmp_path / "x.trie", "--quiet", **settings)
    end = time.monotonic() + 60
    while not list(tmp_path.glob("cache/*/*/*/*.nbc")) and time.monotonic() < end:
        time.sleep(0.002)
    killed.kill()
    killed.communicate()
    outputs = [tmp_path / "a.trie", tmp_path / "b.trie"]
    builds = [start("build", source, "-o", output, "--quiet", **settings) for output in outputs]
    for running in builds:
        found = finish(running)
        assert (found.code, found.stderr) == (0, "")
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    # What both have compiled is whole: a third compiles nothing.
    started = time.monotonic()
    found = run("build", source, "-o", tmp_path / "c.trie", **settings)
    assert found.code == 0
    assert "compil" not in found.stderr
    assert time.monotonic() - started < 10
    assert (tmp_path / "c.trie").read_bytes() == outputs[0].read_bytes()


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_24_two_builds_to_one_output(spilling, source, tmp_path, force):
    output = tmp_path / "out.trie"
    first = start(*spilling.words(output, tmp_path))
    try:
        wait_for_lock(output, first)
        first.send_signal(signal.SIGSTOP)  # until the second has tried
        second = run("build", source, "-o", output, "--quiet", *force)
        assert second.code == 2
        assert second.stderr.startswith(
            f"error: {output}: another build writes to it (pid {first.pid})"
        )
        first.send_signal(signal.SIGCONT)
        found = finish(first)
        assert found.code == 0
        assert found.json["rows"] == 600_000
    finally:
        first.kill()
        first.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keywords.parquet", "out.trie"]


def test_24_a_package_and_a_home_that_are_read_only(source, tmp_path, as_user):
    """Compiled code then goes to the temporary folder; nothing is written beside the package."""
    site, home, temporary = tmp_path / "site", tmp_path / "home", tmp_path / "tmp"
    shutil.copytree(PACKAGE, site / "flashtrie", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    temporary.mkdir()
    for path in (*site.rglob("*"), site, home):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(site.rglob("*"))
    settings = {
        "env": {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "PYTHONPATH": str(site),
        },
        "prefix": as_user,
        "cwd": temporary,
    }
    try:
        found = run("build", source, "-o", tmp_path / "out.trie", "--quiet", "--json", **settings)
        assert found.code == 0, found.stderr
        assert found.stderr == ""
        assert sorted(site.rglob("*")) == before
        assert list(home.iterdir()) == []
        assert [path.name for path in temporary.iterdir()] == [f"flashtrie-{os.getuid()}"]
        (folder,) = temporary.glob("flashtrie-*/*")
        assert list(folder.glob("*/*.nbi"))
        there = ",".join(map(str, power_law(1000, 3)[-1]))
        absent = f"{there},{there}"  # longer than any
        for tokens, code in ((there, 0), (absent, 1)):
            found = run("lookup", tmp_path / "out.trie", "--tokens", tokens, "--json", **settings)
            assert (found.code, found.json["found"]) == (code, 1 - code), tokens
            assert (found.json["results"][0]["key_id"] is None) == (code == 1)
    finally:
        for path in (site, *site.rglob("*"), home):
            path.chmod(0o755)


def test_24_no_home(source, tmp_path):
    kept = {name: value for name, value in environment().items() if name != "HOME"}
    found = run("build", source, "-o", tmp_path / "out.trie", "--quiet", "--json", env=kept)
    assert (found.code, found.stderr) == (0, "")
    assert found.json["keywords"] > 0


def test_27_a_reader_that_leaves_early(source, tmp_path):
    """`trie dump | head`: some lines are read, then the pipe is closed while more are written."""
    path = write_matrix(tmp_path / "many.parquet", power_law(100_000, 4))
    assert run("build", path, "-o", tmp_path / "many.trie", "--quiet").code == 0
    running = subprocess.Popen(
        command("dump", tmp_path / "many.trie"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout and running.stderr
    assert running.stdout.readline().startswith(b"0\t")
    running.stdout.close()
    assert running.wait(60) == 0
    assert running.stderr.read() == b""
    running.stderr.close()


def test_27_the_shell(source, tmp_path):
    assert run("build", source, "-o", tmp_path / "out.trie", "--quiet").code == 0
    script = f"set -o pipefail; {sys.executable} -m flashtrie dump out.trie | head -1"
    found = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("0\t")
    assert found.stdout.count("\n") == 1
