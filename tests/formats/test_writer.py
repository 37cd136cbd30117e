"""The writer: bytes, errors before any work, and nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from flashtrie.formats.errors import OutputError, ResourceError, UsageError
from flashtrie.formats.invariants import check
from flashtrie.formats.outputs import Replacement, check_output, remove_leftovers
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import Coding, Header, sizes
from flashtrie.formats.writer import ArtifactWriter
from tests.formats.keysets import mixed
from tests.reference_builder import reference_artifact


def header(keywords: int = 1000, **changes: Any) -> Header:
    """Keywords of one token each, all tokens in order."""
    table = np.zeros((1, 14), np.int64)
    table[0, 0] = keywords
    counts = dict(
        keywords=keywords,
        nodes=keywords,
        alphabet_size=keywords,
        vocab_size=keywords,
        max_length=1,
        tails="implicit",
        store_tokens=0,
        store_tails=0,
        store=Coding(0, 0, 0),
        values=0,
        value_min=0,
        value_bits=0,
        level_table=table,
    )
    return Header(**{**counts, **changes})


def fill(writer: ArtifactWriter, keywords: int = 1000) -> None:
    ones = np.full(-(-keywords // 64), 2**64 - 1, np.uint64)
    if keywords % 64:
        ones[-1] = 2 ** (keywords % 64) - 1
    ranks = np.arange(0, keywords + 1, 512, dtype=np.uint32)
    writer.write("alphabet", 0, np.arange(keywords, dtype=np.uint32))
    writer.write("root", 0, ones)
    writer.write("root_rank", 0, ranks)
    writer.write("inner_rank", 0, np.zeros(len(ranks), np.uint32))
    writer.write("tail_rank", 0, np.zeros(len(ranks), np.uint32))


def test_write(tmp_path):
    path = tmp_path / "x.trie"
    with ArtifactWriter(path, header(tags={"a": "1"})) as writer:
        assert writer.lengths == sizes(header())
        fill(writer)
        assert not path.exists()
        writer.commit()
    assert os.listdir(tmp_path) == ["x.trie"]
    assert path.stat().st_size == writer.bytes
    with open_artifact(path) as artifact:
        assert artifact.offsets == writer.offsets
        assert all(ok for _, ok, _ in check(artifact))
        assert artifact.header.tags == {"a": "1"}


def test_any_order_and_threads(tmp_path):
    for threads in (1, 3):
        with ArtifactWriter(
            tmp_path / f"{threads}.trie", header(100_000), threads=threads
        ) as writer:
            fill(writer, 100_000)
            alphabet = np.arange(100_000, dtype=np.uint32)
            writer.write("alphabet", 0, np.zeros(100_000, np.uint32))
            pieces = [
                threading.Thread(
                    target=writer.write, args=("alphabet", start, alphabet[start:][:777])
                )
                for start in reversed(range(0, 100_000, 777))
            ]
            for piece in pieces:
                piece.start()
            for piece in pieces:
                piece.join()
            writer.commit()
    assert (tmp_path / "1.trie").read_bytes() == (tmp_path / "3.trie").read_bytes()
    with open_artifact(tmp_path / "1.trie") as artifact:
        assert all(ok for _, ok, _ in check(artifact))


@pytest.mark.parametrize(
    ("name", "start", "array"),
    [
        ("alphabet", 0, np.zeros(1001, np.uint32)),
        ("alphabet", 1000, np.zeros(1, np.uint32)),
        ("alphabet", -1, np.zeros(1, np.uint32)),
        ("alphabet", 0, np.zeros(10, np.int32)),
        ("alphabet", 0, np.zeros((10, 10), np.uint32)),
        ("values", 0, np.zeros(1, np.uint64)),
    ],
)
def test_writes_outside_a_section(tmp_path, name, start, array):
    with ArtifactWriter(tmp_path / "x.trie", header()) as writer:
        with pytest.raises(ValueError, match=f"section {name}"):
            writer.write(name, start, array)
        writer.write("values", 0, np.zeros(0, np.uint64))


def test_nothing_is_left(tmp_path):
    path = tmp_path / "x.trie"
    with ArtifactWriter(path, header()) as writer:
        fill(writer)
    assert os.listdir(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), ArtifactWriter(path, header()):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    writer.abort()


def test_force(tmp_path):
    path = tmp_path / "x.trie"
    path.write_text("old")
    with pytest.raises(OutputError, match="x.trie: .*the file exists.*--force"):
        ArtifactWriter(path, header())
    with ArtifactWriter(path, header(), force=True) as writer:
        fill(writer)
        assert path.read_text() == "old"
        writer.commit()
    open_artifact(path).close()
    assert os.listdir(tmp_path) == ["x.trie"]


def test_a_file_that_comes_meanwhile_stays(tmp_path):
    path = tmp_path / "x.trie"
    with ArtifactWriter(path, header()) as writer:
        path.write_text("other")
        with pytest.raises(OutputError, match="the file exists"):
            writer.commit()
    assert path.read_text() == "other"
    assert os.listdir(tmp_path) == ["x.trie"]


def test_outputs_that_cannot_be(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    for path, match in (
        (tmp_path / "none" / "x.trie", "there is no folder"),
        (tmp_path / "folder", "not a regular file"),
        (f"{tmp_path}/folder/", "names no file"),
        ("/dev/null", "not a regular file"),
        (tmp_path / ("x" * 300), "name too long"),
    ):
        with pytest.raises(OutputError, match=match):
            ArtifactWriter(path, header(), force=True)
        with pytest.raises(OutputError, match=match):
            check_output(path, force=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match="not writable"):
        check_output(tmp_path / "x.trie")
    assert os.listdir(tmp_path) == ["folder"]


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ArtifactWriter("x.trie", header()) as writer:
        fill(writer)
        writer.commit()
    open_artifact("x.trie").close()


def test_no_room(tmp_path, monkeypatch):
    path = tmp_path / "x.trie"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(Replacement, "free", 1000)
        with pytest.raises(ResourceError) as caught:
            ArtifactWriter(path, header(), force=True)
    need = ArtifactWriter(tmp_path / "y.trie", header())
    need.abort()
    assert str(tmp_path) in str(caught.value)
    assert f"it needs {need.bytes:,} bytes and 1,000 are free" in str(caught.value)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ArtifactWriter(path, header(), force=True) as writer:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(ResourceError, match="no room for the artifact: it needs"):
            fill(writer)
    assert os.listdir(tmp_path) == ["x.trie"]
    assert path.read_text() == "old"


def test_full_file_system(tmp_path):
    """A tmpfs of 64 KiB, where this may mount one."""
    program = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from flashtrie.formats.errors import ResourceError
from flashtrie.formats.writer import ArtifactWriter
from tests.formats.test_writer import header
try:
    ArtifactWriter({str(tmp_path / "x.trie")!r}, header(100_000))
except ResourceError as error:
    print(error, os.listdir({str(tmp_path)!r}))
"""
    mount = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec {sys.executable} -"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        probe = subprocess.run([*command, f"mount -t tmpfs tmpfs {tmp_path}"], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if probe.returncode:
        pytest.skip("may not mount")
    done = subprocess.run([*command, mount], input=program, capture_output=True, text=True)
    assert f"{tmp_path}: no room for the artifact: it needs" in done.stdout, done.stderr
    assert done.stdout.endswith("[]\n")


def test_leftovers(tmp_path):
    dead = tmp_path / ".x.trie.999999999.tmp"
    alive = tmp_path / ".x.trie.999999998.tmp"
    others = [".y.trie.1.tmp", ".x.trie.12.tmp.gz", "x.trie.1.tmp", ".x.trie.a.tmp"]
    for name in (dead.name, alive.name, *others):
        (tmp_path / name).write_text("")
    with alive.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_leftovers(tmp_path / "x.trie")
        assert sorted(os.listdir(tmp_path)) == sorted([alive.name, *others])
    ArtifactWriter(tmp_path / "x.trie", header()).abort()
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_killed_writer(tmp_path):
    program = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from flashtrie.formats.writer import ArtifactWriter
from tests.formats.test_writer import header
writer = ArtifactWriter({str(tmp_path / "x.trie")!r}, header())
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program])
    assert len(os.listdir(tmp_path)) == 1
    with ArtifactWriter(tmp_path / "x.trie", header()) as writer:
        fill(writer)
        writer.commit()
    assert os.listdir(tmp_path) == ["x.trie"]


def test_two_writers(tmp_path):
    with ArtifactWriter(tmp_path / "x.trie", header()) as writer:
        with pytest.raises(OutputError, match="another process writes"):
            ArtifactWriter(tmp_path / "x.trie", header())
        fill(writer)
        writer.commit()


def test_tags(tmp_path):
    with pytest.raises(UsageError, match="tags are too long"):
        ArtifactWriter(tmp_path / "x.trie", header(tags={"a": "x" * (1 << 20)}))
    for tags in ({"\udc80": "a"}, {"a": "\ud800"}):
        with pytest.raises(UsageError, match="not Unicode text"):
            ArtifactWriter(tmp_path / "x.trie", header(tags=tags))
    tags = {"": "", 'quote"': "\\ \n\0 \u2028 \U0001f600", "é": "1" * 100_000}
    with ArtifactWriter(tmp_path / "x.trie", header(tags=tags)) as writer:
        fill(writer)
        writer.commit()
    with open_artifact(tmp_path / "x.trie") as artifact:
        assert artifact.header.tags == tags


def test_counts_that_contradict(tmp_path):
    with pytest.raises(ValueError, match="contradict"):
        ArtifactWriter(tmp_path / "x.trie", header(nodes=7))
    assert os.listdir(tmp_path) == []


def test_same_bytes_every_time(tmp_path):
    files = []
    for name in ("a", "b"):
        reference_artifact(tmp_path / name, mixed(rows=300), tags={"b": "2", "a": "1"})
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
