"""Keywords back out, and the differences of two artifacts, over several blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from flashtrie.cpu import dump as dumps
from flashtrie.cpu.answers import AnswersOutput, answers
from flashtrie.cpu.diff import diff
from flashtrie.cpu.dump import blocks, dump
from flashtrie.formats.errors import OutputError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(dumps, "_BLOCK", 64)


def valued_keys(seed, count=400):
    """Distinct keywords, and a value for each."""
    random = np.random.default_rng(seed)
    keys = {tuple(random.integers(0, 6, random.integers(1, 6)).tolist()) for _ in range(count)}
    return {key: int(random.integers(-3, 3)) for key in sorted(keys)}


def test_a_dump_is_the_key_set(tmp_path, build_trie):
    keys = valued_keys(0)
    calls = []
    with build_trie(list(keys), list(keys.values())) as trie:
        dump(trie, tmp_path / "out.parquet", progress=lambda *call: calls.append(call))
        assert [len(block) for block in blocks(trie)] == [
            *[64] * (len(keys) // 64),
            *([len(keys) % 64] if len(keys) % 64 else []),
        ]
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["key_id"] == list(range(len(keys)))
    found = dict(zip(map(tuple, table["tokens"]), table["value"], strict=True))
    assert found == keys
    assert calls[-1] == ("dump", len(keys), len(keys), "keywords")


def test_a_dump_replaces_nothing_without_force(tmp_path, build_trie):
    path = tmp_path / "out.parquet"
    path.write_bytes(b"mine")
    with build_trie([[1]]) as trie:
        with pytest.raises(OutputError, match="--force"):
            dump(trie, path)
        assert path.read_bytes() == b"mine"
        dump(trie, path, force=True)
    assert pq.read_schema(path).names == ["key_id", "tokens"]


def test_differences(tmp_path, build_trie):
    before, after = valued_keys(1), valued_keys(2)
    with (
        build_trie(list(before), list(before.values())) as old,
        build_trie(list(after), list(after.values())) as new,
    ):
        report = diff(old, new, tmp_path / "out.parquet")
        assert diff(old, new) == report
        back = diff(new, old)
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    assert added and removed and changed
    assert (report.old_keywords, report.new_keywords) == (len(before), len(after))
    assert (report.added, report.removed, report.changed) == tuple(
        map(len, (added, removed, changed))
    )
    assert (back.added, back.removed, back.changed) == (len(removed), len(added), len(changed))
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert {
        (row["change"], tuple(row["tokens"]), row["old_value"], row["new_value"]) for row in rows
    } == (
        {("added", key, None, after[key]) for key in added}
        | {("removed", key, before[key], None) for key in removed}
        | {("changed", key, before[key], after[key]) for key in changed}
    )
    assert len(rows) == report.added + report.removed + report.changed


def test_values_on_one_side_alone_are_changes(tmp_path, build_trie):
    keys = valued_keys(3)
    with build_trie(list(keys), list(keys.values())) as old, build_trie(list(keys)) as new:
        report = diff(old, new, tmp_path / "out.parquet")
    assert (report.added, report.removed, report.changed) == (0, 0, len(keys))
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert set(table["new_value"]) == {None}
    assert None not in table["old_value"]


def test_answers(tmp_path, build_trie):
    keys = valued_keys(4)
    asked = [*list(keys)[::3], (0, 0, 0, 0, 0, 0, 0), (99,)]
    tokens = np.array([token for key in asked for token in key], np.uint32)
    offsets = np.cumsum([0, *map(len, asked)])
    with build_trie(list(keys), list(keys.values())) as trie:
        half = len(asked) // 2
        parts = [(tokens, offsets[: half + 1]), (tokens, offsets[half:])]
        rows: list[Any] = []
        with AnswersOutput(tmp_path / "out.parquet", values=True) as file:
            for answer in answers(trie, [(tokens, offsets)]):
                file.add(answer)
                rows += answer.rows()
        key_ids = [trie.lookup([key])[0] for key in asked]
        split = np.concatenate([answer.key_ids for answer in answers(trie, parts)])
    assert split.tolist() == key_ids
    assert [tuple(row[0]) for row in rows] == asked
    assert [-1 if row[1] is None else row[1] for row in rows] == key_ids
    assert [row[2] for row in rows] == [keys.get(key) for key in asked]
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["key_id"] == [row[1] for row in rows]
    assert table["value"] == [row[2] for row in rows]
