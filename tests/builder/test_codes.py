"""Codes of rank sequences: they keep the order, and are read back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashtrie.builder import codes
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.scatter import encode_rows
from flashtrie.builder.sort import sort_range

BORDERS = [0, codes.FIRST_2, codes.FIRST_3, codes.FIRST_4, codes.FIRST_5, 2**32 - 1]
RANKS = st.one_of(
    st.sampled_from(sorted({max(0, b + d) for b in BORDERS for d in (-1, 0) if b + d < 2**32})),
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
)
ROWS = st.lists(st.lists(RANKS, min_size=1, max_size=9).map(tuple), min_size=1, max_size=60)


def code_of(ranks):
    out = np.empty(len(ranks), np.uint64)
    codes.code_words(ranks, out)
    return out


def encode(rows, reverse=False):
    ranks = np.array([rank for row in rows for rank in row], np.uint32)
    offsets = np.cumsum([0, *map(len, rows)])
    entries = np.arange(len(ranks), dtype=np.uint32)
    return encode_rows(entries, offsets, code_of(ranks), reverse=reverse)


def decode(string):
    data = np.frombuffer(string, np.uint8)
    out = np.empty(len(data), np.uint32)
    n = codes.decode(data, 0, len(data), out)
    assert n == codes.count(data, 0, len(data))
    return tuple(out[:n].tolist())


@given(ROWS)
def test_code_strings_are_read_back_and_keep_the_order(rows):
    strings = encode(rows).strings()
    assert [decode(s) for s in strings] == rows
    assert [decode(s) for s in sorted(strings)] == sorted(rows)


@given(ROWS)
def test_reversed(rows):
    assert [decode(s) for s in encode(rows, reverse=True).strings()] == [r[::-1] for r in rows]


@given(ROWS)
def test_prefixes_are_the_first_eight_bytes(rows):
    encoded = encode(rows)
    for string, prefix in zip(encoded.strings(), encoded.prefixes.tolist(), strict=True):
        assert prefix == int.from_bytes(string[:8].ljust(8, b"\0"), "big")


@given(ROWS, st.data())
def test_sort_range_against_sorted(rows, data):
    rows = rows + data.draw(st.lists(st.sampled_from(rows), max_size=20))
    values = data.draw(st.lists(st.integers(-3, 3), min_size=len(rows), max_size=len(rows)))
    keys = sort_range(encode(rows).data, len(rows), np.array(values, np.int64))
    distinct = sorted(set(rows))
    assert [tuple(keys.ranks(i).tolist()) for i in range(len(keys))] == distinct
    smallest = {row: min(v for r, v in zip(rows, values, strict=True) if r == row) for row in rows}
    assert keys.values is not None
    assert keys.values.tolist() == [smallest[row] for row in distinct]
    lost = sum(v != smallest[row] for row, v in zip(rows, values, strict=True))
    assert keys.conflicts == lost
    assert (keys.conflict is not None) == (lost > 0)
    if keys.conflict is not None:
        row = tuple(keys.conflict.tolist())
        assert len({v for r, v in zip(rows, values, strict=True) if r == row}) > 1


@pytest.mark.parametrize("length", [1, 50, 51, 4096])
def test_long_keywords_that_share_all_but_the_end(length):
    rows = [(7,) * (length - 1) + (last,) for last in (300, 5, 20_000, 0, 5)] * 20
    rows += [(7,) * length, (7,) * (length - 1)] if length > 1 else []
    keys = sort_range(encode(rows).data, len(rows), None)
    assert [tuple(keys.ranks(i).tolist()) for i in range(len(keys))] == sorted(set(rows))


def test_rank_codes_are_those_of_all_ranks():
    assert rank_codes(70_000).tolist() == code_of(np.arange(70_000, dtype=np.uint32)).tolist()
