"""Synthetic key sets: distinct, the same however they are cut, and of the laws they claim."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

from flashtrie.builder.generate import generate
from flashtrie.builder.unrank import write_rows
from flashtrie.builder.virtual_trie import KINDS, virtual_trie
from flashtrie.formats.errors import OutputError, UsageError

tables = functools.cache(virtual_trie)
make = functools.partial(generate, vocab_size=10_000)


def rows(kind, keywords, vocab_size=2_200_000, copies=0, seed=0):
    """All rows: tokens and offsets."""
    trie = tables(kind, vocab_size)
    offsets = np.zeros(keywords + copies + 1, np.int32)
    tokens = np.zeros(trie.depth * (keywords + copies), np.uint32)
    total = keywords + copies
    end = write_rows(trie, np.uint64(seed), keywords, total, 0, offsets, tokens)
    return tokens[:end], offsets


def keys(kind, keywords, **options):
    """All rows, as bytes."""
    tokens, offsets = rows(kind, keywords, **options)
    data = tokens.astype(">u4").tobytes()
    return [data[4 * a : 4 * b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("vocab_size", "keywords"),
    [
        (2_200_000, 100_000),
        (2_200_000, 9),
        (2_200_000, 8),
        (2_200_000, 1),
        (50_000, 100_000),
        (1000, 65_537),
        (100, 65_537),
        (17, 33_333),
        (5, 20_000),
        (3, 2_000),
        (2, 128),
        (1, 1),
    ],
)
def test_keywords_are_distinct(kind, vocab_size, keywords):
    keywords = min(keywords, int(tables(kind, vocab_size).capacity[0]))
    tokens, offsets = rows(kind, keywords, vocab_size)
    lengths = np.diff(offsets)
    assert lengths.min() >= 1
    assert lengths.max() <= (10 if kind == "query" else 8)
    assert int(tokens.max()) < vocab_size
    assert len(set(keys(kind, keywords, vocab_size=vocab_size))) == keywords


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_a_full_trie(kind):
    """As many keywords as the trie surely has room for: every node is saturated."""
    capacity = int(tables(kind, 4).capacity[0])
    assert len(set(keys(kind, capacity, vocab_size=4))) == capacity > 1000


def test_a_seed_chooses_the_keywords():
    assert not set(keys("query", 100)) & set(keys("query", 100, seed=1))


def test_copies_are_of_the_keywords_and_among_them():
    found = keys("wide", 10_000, copies=5_000)
    assert len(found) == 15_000
    assert len(set(found)) == 10_000
    assert len(set(found[:1000])) > 900
    assert len(set(found[-1000:])) > 900


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("query", "0a229febba403a081c23e2715615fe4e"),
        ("wide", "cc711fd4d28ce6e7d3ae5e290f8201ff"),
        ("narrow", "4bd178701ff25c14297582e7f0fed0ad"),
    ],
)
def test_the_rows_are_the_same_on_every_machine(kind, digest):
    tokens, offsets = rows(kind, 50_000, copies=1_000, seed=7)
    data = tokens.astype("<u4").tobytes() + offsets.astype("<i4").tobytes()
    assert xxhash.xxh3_128_hexdigest(data) == digest


def read(folder):
    parts = sorted(folder.glob("part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part)["tokens"].to_pylist()]


def test_shards_and_threads_only_cut_the_rows(tmp_path):
    make(tmp_path / "a", 3000, shards=1, threads=1, duplicates=0.1)
    make(tmp_path / "b", 3000, shards=7, threads=3, duplicates=0.1)
    make(tmp_path / "c.parquet", 3000, duplicates=0.1)
    found = read(tmp_path / "a")
    assert len(found) == 3300
    assert found == read(tmp_path / "b")
    assert found == pq.read_table(tmp_path / "c.parquet")["tokens"].to_pylist()


def test_the_report(tmp_path):
    done = []
    report = make(
        tmp_path / "a", 1000, kind="narrow", shards=3, progress=lambda *call: done.append(call)
    )
    assert (report.keywords, report.rows, report.files, report.kind) == (1000, 1000, 3, "narrow")
    assert report.bytes == sum(part.stat().st_size for part in (tmp_path / "a").iterdir())
    assert done[-1] == ("generate", 1000, 1000, "rows")
    schema = pq.read_schema(tmp_path / "a" / "part-00000.parquet")
    assert str(schema.field("tokens").type) == "list<element: uint32 not null>"


def test_the_column_is_what_a_power_law_gives():
    """Shares that random draws of this kind have: 1e5 of them, some percent off."""
    tokens, offsets = rows("wide", 100_000)
    lengths = np.bincount(np.diff(offsets), minlength=9)[1:] / 100_000
    assert np.abs(lengths - [0.012, 0.11, 0.24, 0.26, 0.175, 0.11, 0.065, 0.033]).max() < 0.02
    assert 0.075 < (tokens == 0).mean() < 0.1
    assert 0.4 < (tokens < 100).mean() < 0.55
    assert 65_000 < len(np.unique(tokens)) < 80_000


def test_nothing_is_replaced_without_force(tmp_path):
    folder = tmp_path / "keys"
    make(folder, 100, shards=5)
    with pytest.raises(OutputError, match="not empty.*--force"):
        make(folder, 50)
    assert len(read(folder)) == 100
    make(folder, 50, shards=2, force=True)
    assert len(read(folder)) == 50
    assert sorted(path.name for path in folder.iterdir()) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]


def test_a_file_is_not_replaced_without_force(tmp_path):
    path = tmp_path / "keys.parquet"
    make(path, 100)
    with pytest.raises(OutputError, match="the file exists.*--force"):
        make(path, 50)
    make(path, 50, force=True)
    assert len(pq.read_table(path)) == 50
    with pytest.raises(OutputError, match="a file, not a folder"):
        (tmp_path / "file").touch()
        make(tmp_path / "file", 50)


def test_what_a_dead_run_left_is_no_key_set(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / ".part-00000.parquet.1.tmp").write_bytes(b"half")
    make(tmp_path / "keys", 100, shards=1)
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["part-00000.parquet"]


def test_nothing_is_left_where_it_stops(tmp_path):
    def stop(*call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "keys", 100, progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keywords": 0}, "--keywords is from 1 to 2,147,483,647, not 0"),
        ({"keywords": 2**31}, "--keywords"),
        ({"vocab_size": 0}, "--vocab-size"),
        ({"vocab_size": 2**26}, "--vocab-size"),
        ({"duplicates": -0.1}, "--duplicates"),
        ({"duplicates": float("nan")}, "--duplicates"),
        ({"shards": 0}, "--shards"),
        ({"seed": -1}, "--seed"),
        ({"kind": "deep"}, "--kind is one of query, wide, narrow"),
        ({"keywords": 1_000_000, "vocab_size": 2}, "no room for 1,000,000 keywords"),
    ],
)
def test_options_that_cannot_be_right(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        make(tmp_path / "keys", **{"keywords": 10, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_no_shards(tmp_path):
    with pytest.raises(UsageError, match="no shards"):
        make(tmp_path / "keys.parquet", 10, shards=2)
