"""Totals past 2^31 and 2^32: such bases are injected, since nobody has the rows in a test."""

import numpy as np
import pytest

from flashtrie.builder import pack, tail_store
from flashtrie.builder.alphabet import Alphabet, TokenCounter
from flashtrie.builder.tail_store import least_index_bits
from flashtrie.formats import schema
from flashtrie.formats.schema import COLUMN, MAX_LEVEL_NODES, PARAMETER, Coding, Header

BASE = 2**33 + 5


def test_suffix_indices_and_ordinals_past_2_32():
    first_long = np.array([0, BASE, BASE + 3, BASE + 4])
    ordinals = np.array([BASE + 3, BASE, BASE + 2, 1])
    group = np.array([0, 1, 1, 2], np.int32)
    begins = np.array([2**40, 2**34, 3])
    histograms = np.zeros((3, 65), np.int64)
    tail_store._count_indices(ordinals, group, begins, first_long, histograms)
    found = {(d, n): int(c) for (d, n), c in np.ndenumerate(histograms) if c}
    assert found == {(2, 41): 1, (1, 35): 2, (0, 2): 1}


def test_places_past_2_32():
    at, ends = np.array([BASE, 4]), np.empty(3, np.int64)
    tail_store._fill_ends(np.array([0, 1, 0]), np.array([2, 5, 3], np.uint16), at, ends)
    assert ends.tolist() == [BASE + 2, 9, BASE + 5]
    assert at.tolist() == [BASE + 5, 9]


def test_level_parameters_past_2_32():
    table = np.zeros((3, len(schema.LEVEL_COLUMNS)), np.int64)
    table[:, COLUMN["nodes"]] = [10, MAX_LEVEL_NODES, MAX_LEVEL_NODES]
    table[:, COLUMN["inner"]] = [10, 2**31, 0]
    for column, value in zip(Coding._fields, (12, 10, 2**32 - 1), strict=True):
        table[1:, COLUMN[f"label_{column}"]] = value
    header = Header(
        1, 1, 2**32 - 1, 2**32 - 1, 3, "indexed", BASE, 1, Coding(16, 20, BASE), 0, 0, 0, table
    )
    parameters = schema.level_parameters(header)
    assert parameters[2, PARAMETER["first_key"]] == MAX_LEVEL_NODES - 2**31
    assert parameters[2, PARAMETER["label_high_offset"]] == ((2**32 - 1) * 10 + 63) // 64
    sizes = schema.sizes(header)
    assert sizes["label_low"] == 2 * ((MAX_LEVEL_NODES * 12 + 63) // 64)
    assert sizes["store_high"] == (BASE * 20 + 63) // 64


def test_large_suffix_indices_are_coded_whole():
    low, flag, high = (np.zeros(8, np.uint64) for _ in range(3))
    values = np.array([2**40 + 3, 5, 2**33], np.int64)
    assert pack._code(values, 16, 25, low, flag, high) == 2
    assert [int(low[0] >> np.uint64(16 * i)) & 0xFFFF for i in range(3)] == [3, 5, 0]
    assert int(flag[0]) == 0b101
    assert int(high[0]) == 2**24 | 2**17 << 25


@pytest.mark.parametrize("count", [2**31, 2**32, 2**40])
def test_frequencies_past_2_32(count):
    ids = np.array([3, 4, 9], np.uint32)
    alphabet = Alphabet.from_counts(ids, np.array([1, count, count + 1]))
    assert alphabet.ids.tolist() == [9, 4, 3]


@pytest.mark.parametrize("ids", [[0, 1, 2], [65535, 65536, 2**21], [2**31 + 5, 2**32 - 2, 7]])
def test_alphabet_of_sparse_and_dense_ids(ids):
    counter = TokenCounter(1 << 24)
    for repeat, token in enumerate(ids, 1):
        counter.add(np.array([token] * repeat, np.uint32))
    alphabet = Alphabet.from_counts(*counter.counts())
    assert alphabet.ids.tolist() == ids[::-1]
    codes = alphabet.code_of[alphabet.entries(np.array(ids[::-1], np.uint32))]
    assert (codes >> np.uint64(56)).tolist() == [1, 2, 3]


def test_sparse_ids_are_merged_across_batches(monkeypatch):
    from flashtrie.builder import alphabet as module

    monkeypatch.setattr(module, "_SPARSE_BATCH", 50)
    rng = np.random.default_rng(0)
    tokens = (rng.integers(0, 200, 5000) * 21_000_003 % (2**32 - 1)).astype(np.uint32)
    counter = TokenCounter(1 << 24)
    for part in np.array_split(tokens, 70):
        counter.add(part)
    ids, counts = np.unique(tokens, return_counts=True)
    expected = ids[np.lexsort((ids, -counts))]
    assert Alphabet.from_counts(*counter.counts()).ids.tolist() == expected.tolist()


@pytest.mark.parametrize("tails", [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000])
def test_least_index_bits(tails):
    assert least_index_bits(tails) == sum((2 * i).bit_length() for i in range(tails))
