"""The succinct vectors against loops over Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from flashtrie.formats import bits
from flashtrie.formats.schema import Coding, rank_entries, select_entries, words

SIZES = [0, 1, 31, 32, 33, 63, 64, 65, 99, 511, 512, 513, 1023, 1024, 1025, 66_000]
DENSITIES = [0.0, 0.003, 0.5, 1.0]
WIDTHS = [0, 1, 3, 4, 13, 16, 31, 32, 33, 60, 63, 64]


def bitmap(n: int, density: float) -> np.ndarray:
    return np.random.default_rng(n).random(n) < density


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("density", DENSITIES)
def test_pack_bits(n, density):
    flags = bitmap(n, density)
    packed = bits.pack_bits(flags)
    assert packed.dtype == np.uint64 and len(packed) == words(n)
    number = sum(int(word) << (64 * i) for i, word in enumerate(packed))
    assert number == sum(1 << i for i in np.flatnonzero(flags).tolist())
    assert (bits.unpack_bits(packed, n) == flags).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pack(n, width):
    rng = np.random.default_rng(n)
    values = [int(value) & (2**width - 1) for value in rng.integers(0, 2**63, n, np.int64) * 2 + 1]
    array = np.array(values, np.uint64)
    packed = bits.pack(array, width)
    assert packed.dtype == np.uint64 and len(packed) == words(n * width)
    if n < 2000:
        number = sum(int(word) << (64 * i) for i, word in enumerate(packed))
        assert number == sum(value << (i * width) for i, value in enumerate(values))
    assert (bits.unpack(packed, width, n) == array).all()
    for start in {0, min(1, n), n // 2, max(n - 1, 0), n}:
        assert (bits.unpack(packed, width, n - start, start) == array[start:]).all()
    assert (bits.unpack(packed, width, min(n, 3)) == array[:3]).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_rank_and_select(n, density, dtype):
    flags = bitmap(n, density)
    packed = bits.pack_bits(flags)
    ranks = np.concatenate([[0], np.cumsum(flags)])
    ones = np.flatnonzero(flags)
    directory = bits.rank_directory(packed, n, dtype)
    assert directory.dtype == dtype
    assert directory.tolist() == ranks[::512].tolist()[: rank_entries(n)]
    selects = bits.select_directory(packed, n)
    assert selects.dtype == np.uint32 and len(selects) == select_entries(len(ones))
    if len(ones):
        assert selects[:-1].tolist() == (ones[::512] // 512).tolist()
        assert selects[-1] == (n - 1) // 512
    step = max(n // 1000, 1)
    for i in range(0, n + 1, step):
        assert bits.rank(packed, directory, i) == ranks[i]
    for k in range(0, len(ones), step):
        assert bits.select(packed, directory, selects, k) == ones[k]
    if n:
        with pytest.raises(IndexError):
            bits.select(packed, directory, np.array([0] * 1000, np.uint32), n + 1)


def test_bit_lengths():
    values = [0, 1, 2, 3, 4, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    expected = np.zeros(65, int)
    for value in values:
        expected[value.bit_length()] += 1
    assert bits.bit_lengths(np.array(values, np.uint64)).tolist() == expected.tolist()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 63, 64, 65, 513, 3000])
@pytest.mark.parametrize("low_bits", [None, 4, 9, 16])
@pytest.mark.parametrize("longest", [1, 4, 16, 17, 30, 60])
def test_encode(n, low_bits, longest):
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, longest + 1, n)
    values = np.array([int(rng.integers(0, 2**b)) for b in lengths.tolist()], np.uint64)
    low, flag, flag_rank, high, coding = bits.encode(values, low_bits, np.uint64)
    assert coding == bits.choose_coding(bits.bit_lengths(values), low_bits)
    assert (bits.decode(low, flag, high, n, coding) == values).all()
    assert len(low) == words(n * coding.low_bits)
    assert len(flag) == words(n if coding.high_bits else 0)
    assert len(high) == words(coding.highs * coding.high_bits)
    assert flag_rank.dtype == np.uint64
    assert len(flag_rank) == (rank_entries(n) if coding.high_bits else 0)
    if low_bits and n:
        assert coding.low_bits == low_bits
    assert (coding.high_bits == 0) == (coding.highs == 0)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ({}, Coding(0, 0, 0)),
        ({0: 5}, Coding(4, 0, 0)),
        ({4: 5}, Coding(4, 0, 0)),
        ({16: 5}, Coding(16, 0, 0)),
        ({17: 5}, Coding(16, 1, 5)),
        # low_bits 16: 1000 * 16 = 16000; 4: 1000 * 4 + 1000 + 62 + 10 * 12 = 5182.
        ({4: 990, 16: 10}, Coding(4, 12, 10)),
        # 5: 32 * 5 = 160; 4: 32 * 4 + 32 + 2 + 1 = 163.
        ({4: 31, 5: 1}, Coding(5, 0, 0)),
        # 6: 16 * 6 = 96; 4: 16 * 4 + 16 + 1 + 7 * 2 = 95, and 97 with one more.
        ({4: 9, 6: 7}, Coding(4, 2, 7)),
        ({4: 8, 6: 8}, Coding(6, 0, 0)),
        # 6: 2 * 6 = 12; 4: 2 * 4 + 2 + 0 + 1 * 2 = 12, the larger of equals.
        ({4: 1, 6: 1}, Coding(6, 0, 0)),
    ],
)
def test_choose_coding(lengths, expected):
    histogram = np.zeros(65, np.int64)
    for length, count in lengths.items():
        histogram[length] = count
    assert bits.choose_coding(histogram) == expected
