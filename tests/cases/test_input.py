"""Cases 4, 8, 10, 11, 13, 14: rows and shards that are refused or change, keywords of no token."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flashtrie
from flashtrie import InputError
from flashtrie.builder import plan
from tests.cases.conftest import finish, start
from tests.cli.conftest import trie
from tests.conftest import write_parquet


@pytest.mark.parametrize("token", [-1, 2**32 - 1, 2**40])
def test_4_ids_that_are_none(tmp_path, token):
    write_parquet(tmp_path / "part-1.parquet", [[1, 2]] * 10)
    rows = [[5]] * 7 + [[5, token, 5]]
    bad = write_parquet(tmp_path / "part-2.parquet", rows, dtype=np.int64, row_group_size=3)
    found = trie("build", tmp_path, "-o", tmp_path / "out.trie", "--quiet")
    assert found.code == 2
    assert found.stderr == (
        f"error: {bad}, row group 2, row 7: token id {token} is outside 0..{2**32 - 2}\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-1.parquet", "part-2.parquet"]


def everything(folder: Path) -> dict[str, bytes]:
    """What lies below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("wrong", [["cut"], ["empty"], ["text"], ["cut", "empty", "text"]])
def test_8_damaged_shards_are_listed_and_nothing_is_written(tmp_path, monkeypatch, wrong):
    """Neither output nor scratch nor a lock, beside a right shard; and the old file stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "scratch").mkdir()
    shard = write_parquet(tmp_path / "in" / "part-0.parquet", [[1, 2], [3]])
    contents = {
        "cut": shard.read_bytes()[:-3],
        "empty": b"",
        "text": b"no keywords, but words",
    }
    for name in wrong:
        (tmp_path / "in" / f"{name}.parquet").write_bytes(contents[name])
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "old.trie").write_bytes(b"last night's")
    before = everything(tmp_path)
    reasons = {
        "cut": "the file was cut: its end, with the footer, is missing",
        "empty": "the file is empty",
        "text": "not a Parquet file",
    }
    for output in ([], ["-o", "new.trie"], ["-o", "old.trie", "--force"]):
        found = trie("build", "in", *output, "--tmp-dir", "scratch", "--quiet")
        assert found.code == 2
        assert everything(tmp_path) == before
        lines = [f"{Path('in') / name}.parquet: {reasons[name]}" for name in wrong]
        if len(wrong) == 1:
            assert found.stderr == f"error: {lines[0]}\n"
        else:
            assert found.stderr.startswith(f"error: {len(wrong)} faults in the input")
            assert [line.strip() for line in found.stderr.splitlines()[1:]] == lines


# Case 10. What happens to the second of two shards behind the counting pass.


def replaced(path: Path) -> None:
    """By a file of the same layout with other tokens, which its old footer reads."""
    rows(path.with_name("new"), 2**32 - 5)
    os.replace(path.with_name("new"), path)


def replaced_by_known_tokens(path: Path) -> None:
    rows(path.with_name("new"), 0)
    os.replace(path.with_name("new"), path)


def overwritten(path: Path) -> None:
    """In place, by bytes of the same number."""
    rows(path.with_name("new"), 70_000)
    path.write_bytes(path.with_name("new").read_bytes())
    path.with_name("new").unlink()


def cut(path: Path) -> None:
    os.truncate(path, 100)


def removed(path: Path) -> None:
    path.unlink()


def rows(path: Path, first: int) -> None:
    """1,000 rows whose pages are neither compressed nor coded."""
    flat = pa.array((first + np.arange(3000) % 4).astype(np.uint32))
    tokens = pa.ListArray.from_arrays(pa.array(np.arange(1001) * 3, pa.int32()), flat)
    table = pa.table({"tokens": tokens})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)


@pytest.mark.parametrize("spill", [False, True], ids=["held", "spilled"])
@pytest.mark.parametrize("phase", ["count", "sort"])
@pytest.mark.parametrize("change", [replaced, replaced_by_known_tokens, overwritten, cut, removed])
def test_10_a_shard_that_changes_while_the_build_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    phase: str,
    spill: bool,
) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    rows(inputs / "a.parquet", 10)
    rows(inputs / "b.parquet", 10)
    (tmp_path / "out.trie").write_bytes(b"old")
    if spill:
        monkeypatch.setattr(plan, "_fits", lambda held, memory: False)
    seen: list[str] = []

    def progress(name: str, done: int, total: int, unit: str) -> None:
        if name == phase and done == total and not seen:
            seen.append(name)
            change(inputs / "b.parquet")

    with pytest.raises(InputError) as caught:
        flashtrie.build([inputs], tmp_path / "out.trie", force=True, progress=progress)
    assert seen
    assert str(caught.value).startswith(f"{inputs / 'b.parquet'}: the file changed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.trie"]
    assert (tmp_path / "out.trie").read_bytes() == b"old"


def test_10_by_the_command_line(spilling, artifact, tmp_path):
    """A build that is stopped while it spills, and goes on when its input is another."""
    source, output, scratch = (tmp_path / name for name in ("a.parquet", "out.trie", "scratch"))
    source.write_bytes(spilling.source.read_bytes())
    output.write_bytes(artifact)
    scratch.mkdir()
    running = start(*spilling._replace(source=source).words(output, scratch))
    try:
        end = time.monotonic() + 60
        while not list(scratch.glob("*/levels")) and time.monotonic() < end:
            time.sleep(0.002)
        running.send_signal(signal.SIGSTOP)
        rows(tmp_path / "new", 10)
        os.replace(tmp_path / "new", source)
        running.send_signal(signal.SIGCONT)
        found = finish(running)
    finally:
        running.kill()
        running.communicate()
    assert found.code == 2
    assert found.json["error"]["where"] == str(source)
    assert found.json["error"]["what"] == "the file changed while it was read"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "out.trie", "scratch"]
    assert list(scratch.iterdir()) == []
    assert output.read_bytes() == artifact


def test_11_one_keyword_in_two_shards(tmp_path):
    write_parquet(tmp_path / "a.parquet", [[1, 2], [3], [1, 2], [4]], [5, 6, 5, 9])
    write_parquet(tmp_path / "b.parquet", [[1, 2], [3], [3], [4]], [7, 6, 1, 9])
    words = ["build", tmp_path, "--values", "value", "-o", tmp_path / "out.trie", "--quiet"]
    found = trie(*words, "--json")
    assert found.code == 0
    report = {name: found.json[name] for name in ("keywords", "rows", "duplicates", "conflicts")}
    # Of [1,2] the 7 lost, of [3] both 6.
    assert report == {"keywords": 3, "rows": 8, "duplicates": 5, "conflicts": 3}
    known = [f"--tokens={tokens}" for tokens in ("1,2", "3", "4")]
    found = trie("lookup", tmp_path / "out.trie", *known, "--json", "--quiet")
    assert [row["value"] for row in found.json["results"]] == [5, 1, 9]
    found = trie(*words, "--force", "--on-conflict", "error")
    assert found.code == 2
    assert "has different values" in found.stderr
    assert "keyword [1, 2]" in found.stderr or "keyword [3]" in found.stderr


def test_11_a_value_that_is_null(tmp_path):
    table = pa.table({"tokens": pa.array([[1], [2]]), "value": pa.array([None, 4], pa.int64())})
    source = tmp_path / "a.parquet"
    pq.write_table(table, source)
    words = ["build", source, "--values", "value", "-o", tmp_path / "out.trie", "--quiet"]
    found = trie(*words)
    assert found.code == 2
    assert found.stderr.startswith(f"error: {source}, row group 0, row 0: the value is null")
    found = trie(*words, "--nulls", "skip", "--json")
    assert found.code == 0
    assert (found.json["keywords"], found.json["skipped_nulls"]) == (1, 1)


def test_13_hive_partitions(tmp_path, monkeypatch):
    root = tmp_path / "keywords"
    for day, rows in (("1", [[1], [2]]), ("2", [[2], [3, 4]]), ("10", [[5]])):
        folder = root / f"day={day}" / "_shard=0"
        folder.mkdir(parents=True)
        write_parquet(folder / "part-0.parquet", rows)
    (root / "_SUCCESS").touch()
    (root / "day=1" / ".part-0.parquet.crc").write_bytes(b"crc")
    (root / "_temporary").mkdir()
    (root / "_temporary" / "part-9.parquet").write_bytes(b"half")
    monkeypatch.chdir(tmp_path)
    found = trie("build", root, "--quiet", "--json")
    assert found.code == 0
    assert found.json["output"] == "keywords.trie"
    assert (found.json["keywords"], found.json["rows"]) == (4, 5)
    pattern = root / "day=[12]" / "**" / "*.parquet"
    found = trie("build", pattern, "-o", tmp_path / "some.trie", "--quiet", "--json")
    assert (found.json["keywords"], found.json["rows"]) == (3, 4)


def empty_table(kind: Any, rows: int) -> pa.Table:
    return pa.table({"tokens": pa.array([[]] * rows, pa.list_(kind))})


@pytest.mark.parametrize("words", [[], ["--empty", "skip"], ["--nulls", "skip"]])
def test_14_no_rows(tmp_path, words):
    pq.write_table(empty_table(pa.uint32(), 0), tmp_path / "a.parquet")
    found = trie("build", tmp_path / "a.parquet", "-o", tmp_path / "out.trie", "--quiet", *words)
    assert found.code == 2
    assert found.stderr.startswith(f"error: {tmp_path / 'a.parquet'}: there is no keyword")
    assert "0 rows" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_14_only_empty_lists(tmp_path):
    pq.write_table(empty_table(pa.uint32(), 5), tmp_path / "a.parquet")
    words = ["build", tmp_path / "a.parquet", "-o", tmp_path / "out.trie", "--quiet"]
    found = trie(*words)
    assert found.code == 2
    assert found.stderr.startswith(
        f"error: {tmp_path / 'a.parquet'}, row group 0, row 0: 5 keywords have no tokens"
    )
    found = trie(*words, "--empty", "skip")
    assert found.code == 2
    assert "there is no keyword" in found.stderr
    assert "5 empty" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("token", [0, 7, 2**32 - 2])
@pytest.mark.parametrize("tails", ["implicit", "indexed"])
def test_14_one_keyword_of_one_token(tmp_path, token, tails):
    write_parquet(tmp_path / "a.parquet", [[token]])
    found = trie(
        *("build", tmp_path / "a.parquet", "-o", tmp_path / "out.trie"),
        *("--tails", tails, "--quiet", "--json"),
    )
    assert found.code == 0
    assert found.json["keywords"] == found.json["nodes"] == 1
    with flashtrie.open(tmp_path / "out.trie") as opened:
        assert len(opened) == 1
        assert opened.keyword(0).tolist() == [token]
        assert opened.lookup([[token], [token, token], [1]]).tolist() == [0, -1, -1]
