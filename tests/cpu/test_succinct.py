"""The compiled rank, select, packed and coded arrays equal formats/bits.py, on odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from flashtrie.cpu import succinct
from flashtrie.formats import bits

SIZES = [1, 31, 33, 63, 64, 65, 99, 511, 512, 513, 1023, 1024, 1025, 5000]
DENSITIES = [0.0, 0.01, 0.5, 0.99, 1.0]
BEHIND = 16  # words of garbage behind what is read, as in a file


@njit
def each_rank(file, at, directory, wide, n, result):
    for i in range(n + 1):
        result[i] = succinct.rank(file, at, directory, wide, i)


@njit
def each_select(file, at, directory, wide, entries, n, ones, result):
    for k in range(ones):
        result[k] = succinct.select(file, at, directory, wide, entries, n, k)


@njit
def each_next_one(file, at, n, result):
    for i in range(n):
        result[i] = succinct.next_one(file, at, i, n)


@njit
def each_packed(file, at, width, n, result):
    for i in range(n):
        result[i] = succinct.packed(file, at, width, i)


@njit
def each_packed_wide(file, at, width, n, result):
    for i in range(n):
        result[i] = succinct.packed_wide(file, at, width, i)


@njit
def each_coded(file, where, wide, coding, n, result):
    for i in range(n):
        result[i] = succinct.coded(
            file, where[0], where[1], where[2], where[3], wide, coding[0], coding[1], coding[2], i
        )


@njit
def each_find(file, at, width, start, stop, sought, result):
    for i in range(len(sought)):
        result[i] = succinct.find_packed(file, at, width, start, stop, sought[i])


@njit
def each_select_in_word(words, result):
    for i in range(len(words)):
        for k in range(64):
            result[i, k, 0] = succinct.select_in_word(words[i], k)
            result[i, k, 1] = succinct.select_by_halves(words[i], k)


class File:
    """Sections one after another, garbage between and behind them, and where each begins."""

    def __init__(self, *sections):
        garbage = np.random.default_rng(0).integers(0, 2**64, BEHIND, np.uint64)
        parts, self.at = [garbage[:3]], []
        for section in sections:
            padded = np.zeros(-(-section.nbytes // 8), np.uint64)
            padded.view(np.uint8)[: section.nbytes] = section.view(np.uint8)
            self.at.append(sum(map(len, parts)) * 8 // section.itemsize)
            parts += [padded, garbage[3:4]]
        self.words = np.concatenate([*parts, garbage])
        self.address = self.words.ctypes.data


def bitmap(n, density, seed=1):
    return np.random.default_rng(seed).random(n) < density


@pytest.mark.parametrize("wide", [False, True])
def test_rank_select_and_next_one(wide):
    for n in SIZES:
        for density in DENSITIES:
            chosen = bitmap(n, density)
            words = bits.pack_bits(chosen)
            directory = bits.rank_directory(words, n, np.uint64 if wide else np.uint32)
            entries = bits.select_directory(words, n)
            file = File(words, directory, entries)
            at, ranks, selects = file.at

            result = np.empty(n + 1, np.int64)
            each_rank(file.address, at, ranks, wide, n, result)
            assert result.tolist() == [0, *np.cumsum(chosen).tolist()]

            ones = np.flatnonzero(chosen)
            result = np.empty(len(ones), np.int64)
            each_select(file.address, at, ranks, wide, selects, n, len(ones), result)
            assert result.tolist() == ones.tolist()

            result = np.empty(n, np.int64)
            each_next_one(file.address, at, n, result)
            places = np.append(ones, n)
            assert result.tolist() == places[np.searchsorted(ones, np.arange(n))].tolist()


def test_select_over_many_blocks_between_two_entries():
    n = 600_000
    chosen = np.zeros(n, np.bool_)
    chosen[::1000] = chosen[-3:] = chosen[300_000:301_000] = True
    words = bits.pack_bits(chosen)
    file = File(words, bits.rank_directory(words, n), bits.select_directory(words, n))
    ones = np.flatnonzero(chosen)
    result = np.empty(len(ones), np.int64)
    each_select(file.address, file.at[0], file.at[1], False, file.at[2], n, len(ones), result)
    assert result.tolist() == ones.tolist()


def test_select_in_a_word():
    rng = np.random.default_rng(2)
    words = rng.integers(0, 2**64, 50, np.uint64) & rng.integers(0, 2**64, 50, np.uint64)
    words = np.concatenate([words, np.array([1, 2**63, 2**64 - 1, 0x8000000100000001], np.uint64)])
    result = np.empty((len(words), 64, 2), np.int64)
    each_select_in_word(words, result)
    for i, word in enumerate(words.tolist()):
        ones = [j for j in range(64) if word >> j & 1]
        assert result[i, : len(ones), 0].tolist() == ones
        assert result[i, : len(ones), 1].tolist() == ones


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 11, 16, 31, 32, 33, 47, 57, 58, 63, 64])
def test_packed(width):
    for n in SIZES:
        values = np.random.default_rng(n).integers(0, 2**width, n, np.uint64, endpoint=False)
        values[-1] = 2**width - 1
        file = File(bits.pack(values, width))
        kernels = [each_packed_wide, each_packed] if width <= 57 else [each_packed_wide]
        for kernel in kernels:
            result = np.empty(n, np.int64)
            kernel(file.address, file.at[0], width, n, result)
            assert result.view(np.uint64).tolist() == values.tolist()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("low_bits", [None, 4, 16])
def test_coded(wide, low_bits):
    for n in SIZES:
        values = np.random.default_rng(n).zipf(1.3, n).astype(np.uint64) % np.uint64(2**40)
        dtype = np.uint64 if wide else np.uint32
        low, flag, flag_rank, high, coding = bits.encode(values, low_bits, dtype)
        file = File(low, flag, flag_rank, high)
        result = np.empty(n, np.int64)
        each_coded(file.address, np.array(file.at), wide, np.array(coding), n, result)
        assert result.tolist() == values.tolist()


def test_find():
    rng = np.random.default_rng(3)
    for n in SIZES:
        width = 14
        values = np.sort(rng.choice(2**width, n, replace=False)).astype(np.uint64)
        file = File(bits.pack(values, width))
        for start, stop in [(0, n), (n // 3, n), (n // 3, n // 2), (n, n)]:
            part = values[start:stop].astype(np.int64)
            sought = np.concatenate([part, part + 1, [0, 2**width - 1]])
            result = np.empty(len(sought), np.int64)
            each_find(file.address, file.at[0], width, start, stop, sought, result)
            places = {value: start + i for i, value in enumerate(part.tolist())}
            assert result.tolist() == [places.get(value, -1) for value in sought.tolist()]
