from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from flashtrie.builder.columns import Columns, check, choose, leaf

U32 = pa.list_(pa.uint32())


def schema(**columns: Any) -> pa.Schema:
    return pa.schema(list(columns.items()))


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(t) for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32())),
        *(pa.list_(t) for t in (pa.uint32(), pa.int64(), pa.uint64(), pa.null())),
        pa.large_list(pa.int64()),
        pa.list_(pa.int64(), 3),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.list_(pa.dictionary(pa.int32(), pa.int64())),
    ],
    ids=str,
)
def test_lists_of_integers(kind: pa.DataType) -> None:
    found = schema(id=pa.int64(), tokens=kind, text=pa.string())
    assert choose([("a", found)], text=False) == ("tokens", [])
    assert check(found, Columns("tokens", "id", False)) == []


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(),
        pa.string(),
        pa.binary(),
        pa.list_(pa.string()),
        pa.list_(pa.float32()),
        pa.list_(pa.bool_()),
        pa.list_(U32),
        pa.map_(pa.int32(), pa.int32()),
        pa.struct([("tokens", U32)]),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_other_types(kind: pa.DataType) -> None:
    found = schema(tokens=kind)
    assert choose([("a", found)], text=False) == (None, [])
    (reason,) = check(found, Columns("tokens", None, False))
    assert f"column 'tokens' is {kind}, not a list of integers" in reason


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_text(kind: pa.DataType) -> None:
    found = schema(id=pa.int64(), tokens=U32, query=kind)
    assert choose([("a", found)], text=True) == ("query", [])
    assert check(found, Columns("query", None, True)) == []
    assert "text needs --tokenizer" in check(found, Columns("query", None, False))[0]
    assert "leave out --tokenizer" in check(found, Columns("tokens", None, True))[0]


def test_two_candidates_are_both_listed() -> None:
    column, faults = choose([("f", schema(a=U32, b=pa.large_list(pa.int8())))], text=False)
    assert column is None
    (fault,) = faults
    assert fault.file == "f"
    assert "'a' and 'b'" in fault.reason
    assert "--column" in fault.reason


def test_files_with_different_names_choose_the_commonest() -> None:
    files = [("1", schema(b=U32)), ("2", schema(a=U32)), ("3", schema(a=U32)), ("4", schema())]
    assert choose(files, text=False) == ("a", [])
    assert choose(files[:2], text=False) == ("b", [])
    assert "no column 'a' (there is 'b': list<item: uint32>)" in str(
        check(files[0][1], Columns("a", None, False))
    )
    assert check(files[3][1], Columns("a", None, False)) == ["no column 'a' (there is none)"]


def test_empty_lists_beside_real_ones_are_no_candidate() -> None:
    found = schema(a=pa.list_(pa.null()), b=U32)
    assert choose([("f", found)], text=False) == ("b", [])


@pytest.mark.parametrize("name", ["a.b", "Token IDs", "tokens.list.element", "", "é\n"])
def test_names_are_exact(name: str) -> None:
    struct = pa.struct([("b", U32), ("list", U32)])
    found = pa.schema([("a", struct), ("tokens", struct), (name, U32)])
    assert choose([("f", found)], text=False) == (name, [])
    assert check(found, Columns(name, None, False)) == []
    assert check(found, Columns(f"{name} ", None, False)) != []
    assert check(found, Columns(name.upper() + "X", None, False)) != []
    assert leaf(found, name) == 4


def test_same_name_twice() -> None:
    found = pa.schema([("a", U32), ("a", U32)])
    assert check(found, Columns("a", None, False)) == ["2 columns are named 'a'"]


def test_values() -> None:
    found = schema(tokens=U32, id=pa.uint64(), score=pa.float64(), none=pa.null())
    assert check(found, Columns("tokens", "id", False)) == []
    assert check(found, Columns("tokens", "none", False)) == []
    assert check(found, Columns("tokens", "score", False)) == [
        "column 'score' is double, not an integer"
    ]
    assert "no column 'ID'" in check(found, Columns("tokens", "ID", False))[0]


def test_leaf_counts_nested_columns() -> None:
    nested = pa.struct([("x", pa.int8()), ("y", pa.map_(pa.string(), pa.list_(pa.int8())))])
    found = schema(a=nested, b=pa.fixed_shape_tensor(pa.int32(), [2]), c=pa.int8(), d=U32)
    assert [leaf(found, name) for name in "abcd"] == [0, 3, 4, 5]
