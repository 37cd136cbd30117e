from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import source as source_module
from flashtrie.builder.batches import Place, decode
from flashtrie.builder.source import Source
from flashtrie.formats.errors import InputError, UsageError

U32 = pa.list_(pa.uint32())
PLACE = Place("f.parquet", 2, 100)
Rows = list[list[int]]


def write(path: Path, keywords: Any, kind: Any = U32, **options: Any) -> Path:
    """One file with a column `tokens`, and `value` if it is among the options."""
    columns = {"tokens": keywords if isinstance(keywords, pa.Array) else pa.array(keywords, kind)}
    if "value" in options:
        columns["value"] = options.pop("value")
    try:
        pq.write_table(pa.table(columns), path, **options)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow {pa.__version__}: {error}")
    return path


def rows_of(batch: Any) -> Rows:
    return (
        [row.tolist() for row in np.split(batch.tokens, batch.offsets[1:-1])] if len(batch) else []
    )


def read(source: Source, batch_rows: int = 65536) -> tuple[Rows, list[int]]:
    rows: Rows = []
    values: list[int] = []
    for task in source.tasks:
        for batch in source.read(task, batch_rows):
            assert batch.tokens.dtype == np.uint32
            assert batch.tokens.flags.c_contiguous
            assert batch.offsets.dtype == np.int64
            assert batch.offsets[0] == 0
            assert batch.offsets[-1] == len(batch.tokens)
            rows += rows_of(batch)
            if batch.values is not None:
                assert batch.values.dtype == np.int64
                values += batch.values.tolist()
    return rows, values


def read_error(*files: Path, **options: Any) -> str:
    source = Source.open(files, **options)
    with pytest.raises(InputError) as caught:
        read(source)
    return str(caught.value)


# Case 1: slices and batches.


@pytest.mark.parametrize(
    "kind",
    [U32, pa.large_list(pa.int64()), pa.list_view(pa.int32()), pa.list_(pa.int16(), 3)],
    ids=str,
)
def test_a_slice_is_values_and_offsets_together(kind: Any) -> None:
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    batch = decode(pa.array(rows, kind)[1:3], None, PLACE, skip_nulls=False)
    assert rows_of(batch) == rows[1:3]
    assert batch.first_row == 100


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("kind", [U32, pa.large_list(pa.int64()), pa.list_(pa.int32(), 3)], ids=str)
def test_row_groups_larger_than_the_batch(tmp_path: Path, kind: Any, batch_rows: int) -> None:
    rows = [[i, i + 1, 2 * i] for i in range(300)]
    value = pa.array(range(300))
    source = Source.open(
        [write(tmp_path / "a.parquet", rows, kind, value=value, row_group_size=128)], values="value"
    )
    assert read(source, batch_rows) == (rows, list(range(300)))
    batches = [b for task in source.tasks for b in source.read(task, batch_rows)]
    assert max(map(len, batches)) <= batch_rows
    assert [b.first_row for b in batches][:2] == [0, min(batch_rows, 128)]


def test_batches_stay_small_where_rows_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_BATCH_TOKENS", 1000)
    rows = [list(range(100))] * 50
    source = Source.open([write(tmp_path / "a.parquet", rows)])
    assert [len(batch) for batch in source.read(source.tasks[0])] == [10] * 5


# Case 2: nulls.

WITH_NULLS = [[1], None, [2, 3], None, [4]]


@pytest.mark.parametrize(
    "kind",
    [U32, pa.large_list(pa.int64()), pa.list_view(pa.uint8()), pa.large_list_view(pa.int32())],
    ids=str,
)
def test_null_rows(tmp_path: Path, kind: Any) -> None:
    file = write(tmp_path / "a.parquet", WITH_NULLS, kind, row_group_size=2)
    assert read_error(file).startswith(f"{file}, row group 0, row 1: the keyword is null")
    source = Source.open([file], nulls="skip")
    batches = [batch for task in source.tasks for batch in source.read(task)]
    assert [row for batch in batches for row in rows_of(batch)] == [[1], [2, 3], [4]]
    assert [batch.skipped_nulls for batch in batches] == [1, 1, 0]
    assert sum(batch.skipped_empty for batch in batches) == 0


def test_null_rows_over_hidden_values() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 5], pa.int32()),
        pa.array([1, 2**32 - 1, 3, 4, 5], pa.int64()),
        mask=pa.array([False, True, False]),
    )
    fixed = pa.FixedSizeListArray.from_arrays(
        pa.array([1, 1, None, -3, 4, 5], pa.int64()), 2, mask=pa.array([False, True, False])
    )
    for array, rows in ((hidden, [[1], [4, 5]]), (fixed, [[1, 1], [4, 5]])):
        with pytest.raises(InputError, match="row group 2, row 101: the keyword is null"):
            decode(array, None, PLACE, skip_nulls=False)
        batch = decode(array, None, PLACE, skip_nulls=True)
        assert rows_of(batch) == rows
        assert batch.skipped_nulls == 1
        # A slice that begins at the null row.
        assert rows_of(decode(array[1:], None, PLACE, skip_nulls=True)) == rows[1:]


@pytest.mark.parametrize("nulls", ["error", "skip"])
@pytest.mark.parametrize("kind", [U32, pa.list_(pa.int32(), 2), pa.large_list(pa.int8())], ids=str)
def test_null_token(tmp_path: Path, kind: Any, nulls: str) -> None:
    file = write(
        tmp_path / "a.parquet", [[1, 2], [3, 4], [5, None], [6, 7]], kind, row_group_size=2
    )
    message = read_error(file, nulls=nulls)
    assert message == f"{file}, row group 1, row 2: a token of the keyword is null"


def test_fixed_size_list_with_null_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    assert "row 1: the keyword is null" in read_error(file)
    assert read(Source.open([file], nulls="skip"))[0] == [[1, 2], [3, 4]]


def test_rows_are_numbered_in_the_file_whatever_was_skipped(tmp_path: Path) -> None:
    rows = [None, [], [1], None, [2], [], [-1]]
    file = write(tmp_path / "a.parquet", rows, pa.list_(pa.int32()))
    message = read_error(file, nulls="skip", empty="skip")
    assert "row group 0, row 6: token id -1" in message


# Cases 3, 4, 5, 6: types and ranges.


def test_integer_types_of_shards_are_widened(tmp_path: Path) -> None:
    kinds = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    expected = []
    for i, name in enumerate(kinds):
        most = min(int(np.iinfo(name).max), 2**32 - 2)
        write(tmp_path / f"{i}.parquet", [[0, most], [i]], pa.list_(getattr(pa, name)()))
        expected += [[0, most], [i]]
    assert read(Source.open([tmp_path]))[0] == expected


def test_every_unfit_shard_is_named_before_any_work(tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", [[1]])
    write(tmp_path / "good2.parquet", [[1]])
    write(tmp_path / "strings.parquet", [["a"]], pa.list_(pa.string()))
    write(tmp_path / "scalar.parquet", [1], pa.int64())
    pq.write_table(pa.table({"other": pa.array([[1]], U32)}), tmp_path / "other.parquet")
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "text.parquet").write_text("tokens\n1,2,3\n")
    data = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[:-3])
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(InputError) as caught:
        Source.open([tmp_path, tmp_path / "missing.parquet"])
    message = str(caught.value)
    for name, reason in {
        "strings": "column 'tokens' is list<element: string>, not a list of integers",
        "scalar": "column 'tokens' is int64, not a list of integers",
        "other": "no column 'tokens' (there is 'other': list<element: uint32>)",
        "empty": "the file is empty",
        "text": "not a Parquet file",
        "cut": "the file was cut: its end, with the footer, is missing",
        "missing": "No such file or directory",
    }.items():
        assert f"\n  {tmp_path}/{name}.parquet: {reason}" in message
    assert "good" not in message
    assert "7 faults" in message


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ["x"], pa.string())
    with pytest.raises(InputError) as caught:
        Source.open([file])
    assert caught.value.where == str(file)
    assert "--tokenizer" in caught.value.what


@pytest.mark.parametrize(
    ("kind", "token"),
    [
        ("int8", -1),
        ("int16", -1),
        ("int32", -1),
        ("int32", -(2**31)),
        ("int64", -1),
        ("uint32", 2**32 - 1),
        ("int64", 2**32 - 1),
        ("uint64", 2**32 - 1),
        ("int64", 2**40),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
    ],
)
def test_ids_out_of_range(tmp_path: Path, kind: str, token: int) -> None:
    rows = [[1], [2, 3], [4, token, 5], [6]]
    file = write(tmp_path / "a.parquet", rows, pa.list_(getattr(pa, kind)()), row_group_size=2)
    expected = f"{file}, row group 1, row 2: token id {token} is outside 0..4294967294"
    assert read_error(file) == expected


def test_ids_at_the_limits(tmp_path: Path) -> None:
    rows = [[0, 65535, 65536, 2**21], [2**31 + 5, 2**32 - 2], [1], [65537]]
    for kind in (pa.uint32(), pa.int64(), pa.uint64()):
        assert read(Source.open([write(tmp_path / "a.parquet", rows, pa.list_(kind))]))[0] == rows


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_without_the_arrow_schema(tmp_path: Path, version: Any) -> None:
    rows = [[1, 2**32 - 2], [3]]
    file = write(tmp_path / "a.parquet", rows, version=version, store_schema=False)
    assert read(Source.open([file]))[0] == rows


@pytest.mark.parametrize("large", [False, True])
def test_dictionary_encoded_integers(tmp_path: Path, large: bool) -> None:
    tokens = pa.array([5, 6, 5, 2**32 - 2], pa.uint32()).dictionary_encode()
    kind: Any = pa.LargeListArray if large else pa.ListArray
    lists = kind.from_arrays([0, 2, 3, 4], tokens)
    rows = [[5, 6], [5], [2**32 - 2]]
    assert rows_of(decode(lists, None, PLACE, skip_nulls=False)) == rows
    values = pa.array([7, -1, 7]).dictionary_encode()
    file = write(tmp_path / "a.parquet", lists, value=values)
    assert read(Source.open([file], values="value")) == (rows, [7, -1, 7])


# Case 16: lengths.


def test_lengths(tmp_path: Path) -> None:
    rows = [list(range(4096)), list(range(4095)), [7]]
    file = write(tmp_path / "a.parquet", rows)
    assert read(Source.open([file]))[0] == rows
    file = write(tmp_path / "b.parquet", [[1], list(range(4097)), [1] * 5000])
    assert read_error(file) == (
        f"{file}, row group 0, row 1: the keyword has 4097 tokens, and 4096 is the most"
    )


# Case 14: empty rows and files.


def test_empty_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [[1], [], [2], [], []], value=pa.array(range(5)))
    source = Source.open([file], values="value")
    with pytest.raises(InputError) as caught:
        list(source.read(source.tasks[0], 2))
    assert str(caught.value).startswith(
        f"{file}, row group 0, row 1: 3 keywords have no tokens. --empty skip"
    )
    source = Source.open([file], values="value", empty="skip")
    assert read(source, 2) == ([[1], [2]], [0, 2])
    batches = list(source.read(source.tasks[0]))
    assert batches[0].skipped_empty == 3
    assert batches[0].skipped_nulls == 0


@pytest.mark.parametrize("kind", [None, U32], ids=str)
def test_only_empty_lists(tmp_path: Path, kind: Any) -> None:
    file = write(tmp_path / "a.parquet", [[], []], kind)
    assert "2 keywords have no tokens" in read_error(file)
    assert read(Source.open([file], empty="skip"))[0] == []


def test_no_rows(tmp_path: Path) -> None:
    source = Source.open([write(tmp_path / "a.parquet", [])])
    assert (source.rows, source.tasks) == (0, [])


# Case 11: values.


@pytest.mark.parametrize("kind", ["int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"])
def test_values(tmp_path: Path, kind: Any) -> None:
    limits = np.iinfo(kind)
    values = [int(limits.min), min(int(limits.max), 2**63 - 1), 5]
    file = write(tmp_path / "a.parquet", [[1], [2], [3]], value=pa.array(values, kind))
    assert read(Source.open([file], values="value"), 2) == ([[1], [2], [3]], values)


def test_value_that_does_not_fit(tmp_path: Path) -> None:
    value = pa.array([1, 2**63, 3], pa.uint64())
    file = write(tmp_path / "a.parquet", [[1], [2], [3]], value=value)
    assert f"{file}, row group 0, row 1: value 9223372036854775808 is above" in read_error(
        file, values="value"
    )


def test_null_values(tmp_path: Path) -> None:
    value = pa.array([1, None, 3, None], pa.int32())
    file = write(tmp_path / "a.parquet", [[1], [2, 9], None, [4]], value=value)
    assert "row 2: the keyword is null" in read_error(file, values="value")
    source = Source.open([file], values="value", nulls="skip")
    (batch,) = source.read(source.tasks[0])
    assert rows_of(batch) == [[1]]
    assert batch.values is not None
    assert batch.values.tolist() == [1]
    assert batch.skipped_nulls == 3
    file = write(tmp_path / "b.parquet", [[1], [2, 9]], value=pa.nulls(2))
    assert "row 0: the value is null" in read_error(file, values="value")


# Case 12: names.


@pytest.mark.parametrize("name", ["a.b", "Token IDs", "tokens.list.element"])
def test_column_names(tmp_path: Path, name: str) -> None:
    nested = pa.array([{"b": [9], "list": [9]}])
    table = pa.table([nested, pa.array([[1, 2]], U32), nested], names=["a", name, "tokens"])
    pq.write_table(table, tmp_path / "a.parquet")
    for column in (None, name):
        source = Source.open([tmp_path], column=column)
        assert (source.column, source.tokens) == (name, 2)
        assert read(source)[0] == [[1, 2]]


def test_two_candidates(tmp_path: Path) -> None:
    lists = pa.array([[1]], U32)
    pq.write_table(pa.table({"a": lists, "b": lists}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="'a' and 'b' are lists of integers: choose with --column"):
        Source.open([tmp_path])
    assert read(Source.open([tmp_path], column="b"))[0] == [[1]]


# Case 13: Hive partitions.


def test_hive_partitions(tmp_path: Path) -> None:
    for a, b in ((1, 2), (1, 10), (3, 4)):
        folder = tmp_path / f"a={a}" / f"b={b}"
        folder.mkdir(parents=True)
        write(folder / "part-0.parquet", [[a, b]])
    source = Source.open([tmp_path])
    assert read(source)[0] == [[1, 2], [1, 10], [3, 4]]


@pytest.mark.parametrize("name", ["a b.parquet", "ключ#1?.parquet", "100%.parquet", "s3:x.parquet"])
def test_local_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write(tmp_path / name, [[1]])
    monkeypatch.chdir(tmp_path)
    for given in (name, f"./{name}", tmp_path / name, tmp_path):
        assert read(Source.open([given]))[0] == [[1]]


# Totals, tasks, threads.


def test_totals_and_tasks(tmp_path: Path) -> None:
    for i in (10, 2, 1):
        write(tmp_path / f"part-{i}.parquet", [[i, i]] * 5, row_group_size=2)
    source = Source.open([tmp_path])
    assert [os.path.basename(file.name) for file in source.files] == [
        "part-1.parquet",
        "part-2.parquet",
        "part-10.parquet",
    ]
    assert (source.rows, source.tokens, source.has_values) == (15, 30, False)
    assert source.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert [task[:5] for task in source.tasks[:4]] == [
        (0, 0, 0, 2, 4),
        (0, 1, 2, 2, 4),
        (0, 2, 4, 1, 2),
        (1, 0, 0, 2, 4),
    ]


def test_many_threads_and_footers_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_FOOTERS_KEPT", 0)
    rng = np.random.default_rng(0)
    expected = []
    for i in range(4):
        rows = [rng.integers(0, 2**32 - 1, rng.integers(1, 9)).tolist() for _ in range(500)]
        write(tmp_path / f"{i}.parquet", rows, row_group_size=100)
        expected += rows
    source = Source.open([tmp_path])
    barrier = threading.Barrier(4)

    def all_rows(_: int) -> Rows:
        barrier.wait()
        return read(source, 33)[0]

    with ThreadPoolExecutor(4) as pool:
        assert all(rows == expected for rows in pool.map(all_rows, range(4)))


def test_options() -> None:
    with pytest.raises(UsageError, match="nulls"):
        Source.open(["x"], nulls="drop")
    with pytest.raises(UsageError, match="no input"):
        Source.open([])


# Case 10 and damage.


@pytest.mark.parametrize("kept", [1 << 20, 0])
def test_a_replaced_shard_is_an_error(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_FOOTERS_KEPT", kept)
    write(tmp_path / "a.parquet", [[1]] * 1000)
    write(tmp_path / "b.parquet", [[1]] * 1000)
    source = Source.open([tmp_path])
    source.check_unchanged()
    write(tmp_path / "new", [[i, -1] for i in range(5)], pa.list_(pa.int64()), compression="none")
    os.replace(tmp_path / "new", tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: the file changed while it was read"):
        source.check_unchanged()
    with pytest.raises(InputError, match="changed while it was read"):
        read(source)
    write(tmp_path / "b.parquet", ["other"], pa.string())
    with pytest.raises(InputError, match="changed while it was read"):
        read(source)
    os.unlink(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="changed while it was read"):
        source.check_unchanged()


def test_damaged_pages_are_named(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.parquet",
        [[i] for i in range(5000)],
        row_group_size=2500,
        write_page_checksum=True,
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 4] ^= 1
    file.write_bytes(data)
    message = read_error(file)
    assert message.startswith(f"{file}, row group 0: cannot be read: ")
    assert "CRC" in message


def test_a_column_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"tokens": [[1, 2]]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"tokens", b"\xffokens"))
    with pytest.raises(InputError, match="a.parquet: the name of a column is not UTF-8"):
        Source.open([path])


def test_no_file_stays_open_after_an_error(tmp_path: Path) -> None:
    source = Source.open([write(tmp_path / "a.parquet", [[-1]], pa.list_(pa.int32()))])
    before = os.listdir("/proc/self/fd")
    with pytest.raises(InputError):
        read(source)
    assert len(os.listdir("/proc/self/fd")) == len(before)
