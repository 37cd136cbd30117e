"""Cases 22 and 26: disks that are full, and outputs that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import flashtrie
from flashtrie import ResourceError
from flashtrie.builder import plan, spill
from tests.cases.conftest import finish, power_law, run, start, write_matrix

MIB = 1 << 20


def contents(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def assert_says(message: str, folder: Path) -> None:
    """One message with the folder, the need and what is free."""
    assert message.startswith(f"error: {folder}")
    assert message.count("\n") == 1
    numbers = re.search(r"needs (?:about )?([0-9,]+) bytes and ([0-9,]+)", message)
    assert numbers, message
    need, free = (int(number.replace(",", "")) for number in numbers.groups())
    assert need > free


@pytest.fixture(scope="module")
def scratch_bytes(spilling, tmp_path_factory):
    """The most bytes that the scratch files of a build take, as far as can be seen from outside."""
    folder = tmp_path_factory.mktemp("scratch")
    most = 0
    running = start(*spilling.words(folder / "out.trie", folder, "--tails=indexed"))
    while running.poll() is None:
        seen = 0
        for path in folder.glob("flashtrie-*"):
            for place, _, names in os.walk(path):  # silent where the build removes what is walked
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        seen += os.stat(os.path.join(place, name)).st_blocks * 512
        most = max(most, seen)
        time.sleep(0.005)
    assert finish(running).code == 0
    return most


@pytest.mark.parametrize("share", [0.02, 0.4, 0.8])
def test_22_full_scratch(spilling, scratch_bytes, artifact, small_disk, tmp_path, share):
    """In the first file, and in later stages."""
    output = tmp_path / "out.trie"
    output.write_bytes(artifact)
    with small_disk(int(share * scratch_bytes)) as disk:
        words = spilling.words(output, disk, "--tails=indexed")
        found = run(*(word for word in words if word != "--json"))
        assert found.code == 2
        assert_says(found.stderr, disk)
        assert "--tmp-dir" in found.stderr
        assert contents(disk) == {}
    assert contents(tmp_path) == {"out.trie": len(artifact)}
    assert output.read_bytes() == artifact


@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
def test_22_full_output(tmp_path, artifact, small_disk, old):
    source = write_matrix(tmp_path / "keywords.parquet", power_law(100_000, 4))
    with small_disk(MIB // 4) as disk:
        output = disk / "out.trie"
        if old:
            output.write_bytes(artifact)
        found = run("build", source, "-o", output, "--force", "--quiet")
        assert found.code == 2
        assert_says(found.stderr, disk)
        assert contents(disk) == ({"out.trie": len(artifact)} if old else {})
        assert not old or output.read_bytes() == artifact


def test_22_scratch_and_output_on_one_disk(spilling, artifact, small_disk):
    """As by default. There is room for most of the scratch files."""
    with small_disk(32 * MIB) as disk:
        output = disk / "out.trie"
        output.write_bytes(artifact)
        (disk / "filled").write_bytes(bytes(26 * MIB))
        found = run(*spilling.words(output, disk))
        assert found.code == 2
        assert found.json["error"]["where"].startswith(str(disk))
        assert contents(disk) == {"out.trie": len(artifact), "filled": 26 * MIB}
        assert output.read_bytes() == artifact


def test_22_a_disk_without_a_byte(tmp_path, small_disk):
    source = write_matrix(tmp_path / "keywords.parquet", power_law(10, 4))
    with small_disk(64 << 10) as disk:
        with (disk / "filled").open("wb", 0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))
        found = run("build", source, "-o", disk / "out.trie", "--quiet")
        assert found.code == 2
        assert found.stderr.startswith(f"error: {disk}: the disk is full")
        assert "--tmp-dir or -o" in found.stderr
        assert list(contents(disk)) == ["filled"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_22_any_write_that_finds_no_room(tmp_path, monkeypatch, artifact, share):
    """Whoever may mount or not: the first, the last, and writes between them fail."""
    source = write_matrix(tmp_path / "keywords.parquet", power_law(20_000, 5))
    output, scratch = tmp_path / "out.trie", tmp_path / "scratch"
    scratch.mkdir()
    output.write_bytes(artifact)
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)
    monkeypatch.setattr(spill, "_MOST_BUFFERED", 1 << 13)
    writes, failing = 0, -1
    pwrite = os.pwrite

    def count(real: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes > failing >= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments)

        return counted

    monkeypatch.setattr(os, "pwrite", count(pwrite))
    options: dict[str, Any] = {"tmp_dir": scratch, "tails": "indexed", "threads": 1, "force": True}
    flashtrie.build([source], tmp_path / "other.trie", **options)
    (tmp_path / "other.trie").unlink()
    assert writes > 50
    failing, writes = int(share * (writes - 1)), 0
    with pytest.raises(ResourceError) as caught:
        flashtrie.build([source], output, **options)
    assert caught.value.where.startswith(str(tmp_path))
    assert "are free" in caught.value.cause
    assert contents(scratch) == {}
    assert contents(tmp_path).keys() == {"keywords.parquet", "out.trie", "scratch"}
    assert output.read_bytes() == artifact


@pytest.fixture
def no_input(tmp_path: Path) -> Path:
    """An input that is an error of its own as soon as it is looked at."""
    return tmp_path / "missing.parquet"


def test_26_a_folder_that_is_read_only(no_input, tmp_path, as_user):
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(0o555)
    for words in (["-o", folder / "out.trie"], ["-o", folder / "out.trie", "--force"]):
        found = run("build", no_input, *words, "--quiet", prefix=as_user)
        assert found.code == 2
        assert f"the folder {folder} is not writable" in found.stderr
        assert "missing.parquet" not in found.stderr
    assert contents(folder) == {}


def test_26_a_working_folder_that_is_read_only(no_input, tmp_path, as_user):
    """The output of an input without -o is STEM.trie in the working folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(0o555)
    found = run("build", no_input, "--quiet", prefix=as_user, cwd=folder)
    assert found.code == 2
    assert "missing.trie: cannot write the artifact" in found.stderr
    assert "is not writable" in found.stderr


def test_26_a_scratch_folder_that_is_read_only(spilling, tmp_path, as_user):
    """It is found out before anything is read: the progress would say so."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o555)
    found = run(*spilling.words(tmp_path / "out.trie", scratch), prefix=as_user)
    assert found.code == 2
    assert found.json["error"]["where"] == str(scratch)
    assert found.json["error"]["what"] == "cannot make a scratch folder"
    assert "--tmp-dir" in found.json["error"]["hint"]
    assert contents(tmp_path).keys() == {"scratch"}


def test_26_a_folder_that_is_missing(no_input, tmp_path):
    found = run("build", no_input, "-o", tmp_path / "no" / "out.trie", "--quiet")
    assert found.code == 2
    assert f"there is no folder {tmp_path / 'no'}" in found.stderr
    assert os.listdir(tmp_path) == []


def test_26_a_file_that_is_there(no_input, tmp_path):
    (tmp_path / "out.trie").write_bytes(b"mine")
    found = run("build", no_input, "-o", tmp_path / "out.trie", "--quiet")
    assert found.code == 2
    assert "the file exists" in found.stderr
    assert "--force" in found.stderr
    assert "missing.parquet" not in found.stderr
    assert (tmp_path / "out.trie").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["out.trie"]


def test_26_an_input_and_an_artifact_that_may_not_be_read(artifact, tmp_path, as_user):
    source = write_matrix(tmp_path / "keywords.parquet", power_law(10, 4))
    old = tmp_path / "old.trie"
    old.write_bytes(artifact)
    for path in (source, old):
        path.chmod(0)
    found = run("build", source, "-o", tmp_path / "out.trie", "--quiet", prefix=as_user)
    assert found.code == 2
    assert found.stderr.startswith(f"error: {source}: ")
    assert found.stderr.endswith("Permission denied\n") and found.stderr.count("\n") == 1
    for verb in ("info", "verify", "dump"):
        found = run(verb, old, "--quiet", prefix=as_user)
        assert found.code == 2
        assert found.stderr == f"error: {old}: cannot read the artifact: Permission denied\n"
    assert contents(tmp_path).keys() == {"keywords.parquet", "old.trie"}
