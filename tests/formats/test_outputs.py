"""Files that appear whole or not at all, Parquet among them."""

from __future__ import annotations

import errno
import fcntl
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.formats.errors import OutputError, ResourceError
from flashtrie.formats.outputs import Replacement
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists

COLUMNS = {"tokens": TOKENS, "id": pa.int64()}


def rows(start, stop):
    """Row i has i % 3 tokens, each i."""
    lengths = np.arange(start, stop) % 3
    tokens = np.repeat(np.arange(start, stop), lengths).astype(np.uint32)
    return token_lists(tokens, np.concatenate([[0], np.cumsum(lengths)])), np.arange(start, stop)


def test_row_groups_of_a_parquet_file(tmp_path):
    path = tmp_path / "out.parquet"
    with ParquetOutput(path, COLUMNS, "the rows") as file:
        file.write(*rows(0, 10))
        file.write(*rows(10, 15))
        assert file.rows == 15
        assert not path.exists()
    found = pq.ParquetFile(path)
    assert [found.metadata.row_group(i).num_rows for i in range(2)] == [10, 5]
    assert found.read().to_pydict() == {
        "tokens": [[i] * (i % 3) for i in range(15)],
        "id": list(range(15)),
    }
    assert not any(field.nullable for field in found.schema_arrow)
    assert os.listdir(tmp_path) == ["out.parquet"]


def test_what_is_null(tmp_path):
    path = tmp_path / "out.parquet"
    with ParquetOutput(path, {"id": pa.int64()}, "the rows", nullable=["id"]) as file:
        file.write(pa.array([1, None]))
    assert pq.read_table(path)["id"].to_pylist() == [1, None]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.parquet"
    path.write_bytes(b"mine")
    with pytest.raises(KeyboardInterrupt):
        with ParquetOutput(path, COLUMNS, "the rows", force=True) as file:
            file.write(*rows(0, 10))
            raise KeyboardInterrupt
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["out.parquet"]


@pytest.mark.parametrize("method", ["write_batch", "close"])
def test_a_full_disk(tmp_path, monkeypatch, method):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "out.parquet"
    with pytest.raises(ResourceError, match="no room for the rows.* bytes and .* are free"):
        with ParquetOutput(path, COLUMNS, "the rows") as file:
            monkeypatch.setattr(pq.ParquetWriter, method, full)
            file.write(*rows(0, 10))
    assert os.listdir(tmp_path) == []


def test_nothing_is_replaced_without_force(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"mine")
    with pytest.raises(OutputError, match="cannot write the list: the file exists. --force"):
        Replacement(path, "the list")
    with Replacement(path, "the list", force=True) as file:
        os.write(file.descriptor, b"new")
        file.commit()
    assert path.read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "out"
    with Replacement(path, "the list") as file:
        path.write_bytes(b"theirs")
        with pytest.raises(OutputError, match="the file exists"):
            file.commit()
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["out"]


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    dead, living = tmp_path / ".out.1.tmp", tmp_path / ".out.2.tmp"
    dead.touch()
    with open(living, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with Replacement(tmp_path / "out", "the list") as replacement:
            replacement.commit()
    assert sorted(os.listdir(tmp_path)) == [".out.2.tmp", "out"]
