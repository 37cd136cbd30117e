"""Rank, select, packed and coded arrays, compiled: constant time each, over the mapped file.

Every function takes the address of the file, and the positions of sections in it, of bitmaps
and packed arrays in 64-bit words, of directories in elements; docs/format.md has the layout. The
counts and positions come from the level table, which was checked at opening, but the payload was
not: so every number that a payload gives is clamped before it is used as an index. A wrong
payload gives wrong numbers, never an access outside the file or an endless loop. Some functions
load whole blocks, which may reach up to 64 bytes behind the last bitmap or array, and mask off
what is there; at least 128 bytes of chunk_digests follow. formats/bits.py has the same in NumPy,
which is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import (
    HAS_DEPOSIT,
    deposit,
    i64,
    popcount,
    prefetch,
    trailing_zeros,
    u32,
    u64,
    u64_at_byte,
)
from flashtrie.formats.jit import Int
from flashtrie.formats.schema import BLOCK_BITS, SELECT_ONES

_BLOCK_WORDS = BLOCK_BITS // 64
_NEAR_BLOCKS = 4
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@inner
def bit(file: Int, at: Int, i: Int) -> Any:
    """Bit `i` of the bitmap at word `at`."""
    return (u64(file, at + (i >> 6)) >> np.uint64(i & 63)) & np.uint64(1) != np.uint64(0)


@inner
def packed(file: Int, at: Int, width: Int, i: Int) -> Int:
    """Element `i` of the packed array of `width` bits (1 to 57) at word `at`. One load."""
    first = i * width
    loaded = u64_at_byte(file, at * 8 + (first >> 3)) >> np.uint64(first & 7)
    return np.int64(loaded & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))


@inner
def packed_wide(file: Int, at: Int, width: Int, i: Int) -> Int:
    """The same for a width of 1 to 64. Two loads, maybe of the same word."""
    first = i * width
    shift = first & 63
    index = at + (first >> 6)
    crosses = 1 if shift + width > 64 else 0
    low = u64(file, index) >> np.uint64(shift)
    # A shift by 64 would be undefined: by 1, then by 63 - shift. Where nothing crosses, what this
    # brings in stands above the element and is masked off.
    high = (u64(file, index + crosses) << np.uint64(1)) << np.uint64(63 - shift)
    return np.int64((low | high) & (_ONES >> np.uint64(64 - width)))


@inner
def rank(file: Int, at: Int, directory: Int, wide: bool, i: Int) -> Int:
    """Ones before bit `i` of the bitmap at word `at`. One directory entry and one 64-byte block.

    Entries have 64 bits where `wide`, else 32. The directory's part is not clamped. The words up
    to `i` are counted as four, two, one and a part, each of them or 0: no branches.
    """
    block = i >> 9
    ones: Int = i64(file, directory + block) if wide else u32(file, directory + block)
    index = at + block * _BLOCK_WORDS
    four, two, one = (i >> 6) & 4, (i >> 6) & 2, (i >> 6) & 1
    count = popcount(u64(file, index)) + popcount(u64(file, index + 1))
    count += popcount(u64(file, index + 2)) + popcount(u64(file, index + 3))
    ones += count if four else 0
    index += four
    count = popcount(u64(file, index)) + popcount(u64(file, index + 1))
    ones += count if two else 0
    index += two
    count = popcount(u64(file, index))
    ones += count if one else 0
    part = (np.uint64(1) << np.uint64(i & 63)) - np.uint64(1)
    return ones + popcount(u64(file, index + one) & part)


@inner
def prefetch_rank(file: Int, at: Int, directory: Int, i: Int) -> None:
    """Ask for what `rank` of bit `i` reads, with 32-bit entries; a block may lie in two lines."""
    block = i >> 9
    prefetch(file, directory + block, 4)
    prefetch(file, at + block * _BLOCK_WORDS, 8)
    prefetch(file, at + block * _BLOCK_WORDS + _BLOCK_WORDS - 1, 8)


@inner
def select_by_halves(word: np.uint64, k: Int) -> Int:
    """Position of the `k`-th one of a word, 0 to 63. Six halvings without a branch."""
    position = 0
    for width in (32, 16, 8, 4, 2, 1):
        ones = popcount(word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)))
        step = width if k >= ones else 0
        k = k - ones if k >= ones else k
        word >>= np.uint64(step)
        position += step
    return position


@inner
def select_by_deposit(word: np.uint64, k: Int) -> Int:
    """Position of the `k`-th one of a word, 64 where there is none. Three instructions."""
    return trailing_zeros(deposit(np.uint64(1) << np.uint64(k & 63), word))


select_in_word = select_by_deposit if HAS_DEPOSIT else select_by_halves


@inner
def select_between(
    file: Int, at: Int, directory: Int, wide: bool, low: Int, high: Int, n: Int, k: Int
) -> Int:
    """Position of the `k`-th one of `n` bits, known to stand in blocks `low` to `high`.

    Logarithmic in the blocks, then 4 entries and one block of 64 bytes, both without a branch.
    Always 0 to n - 1.
    """
    while high - low > _NEAR_BLOCKS:
        middle = (low + high + 1) >> 1
        before: Int = i64(file, directory + middle) if wide else u32(file, directory + middle)
        if before <= k:
            low = middle
        else:
            high = middle - 1
    block = low
    for j in range(1, 1 + _NEAR_BLOCKS):
        before = i64(file, directory + low + j) if wide else u32(file, directory + low + j)
        block += 1 if (before <= k) & (low + j <= high) else 0
    rest = k - (i64(file, directory + block) if wide else u32(file, directory + block))
    index = at + block * _BLOCK_WORDS
    ones = 0
    for j in range(4):
        ones += popcount(u64(file, index + j))
    index = index + 4 if rest >= ones else index
    rest = rest - ones if rest >= ones else rest
    ones = popcount(u64(file, index)) + popcount(u64(file, index + 1))
    index = index + 2 if rest >= ones else index
    rest = rest - ones if rest >= ones else rest
    ones = popcount(u64(file, index))
    index = index + 1 if rest >= ones else index
    rest = rest - ones if rest >= ones else rest
    position = (index - at) * 64 + select_in_word(u64(file, index), rest)
    return min(position, n - 1)


@inner
def select(
    file: Int, at: Int, directory: Int, wide: bool, select_directory: Int, n: Int, k: Int
) -> Int:
    """Position of the `k`-th one of a bitmap of `n` bits with a select directory, 0 to n - 1."""
    last = (n - 1) // BLOCK_BITS
    entry = select_directory + k // SELECT_ONES
    low = min(u32(file, entry), last)
    high = min(u32(file, entry + 1), last)
    return select_between(file, at, directory, wide, low, high, n, k)


@inner
def bits_from(file: Int, at: Int, i: Int) -> Any:
    """The bits of a bitmap from `i` on, 57 at least: bit 0 is bit `i`. One load."""
    return u64_at_byte(file, at * 8 + (i >> 3)) >> np.uint64(i & 7)


@inner
def next_one(file: Int, at: Int, i: Int, n: Int) -> Int:
    """The first one at or behind bit `i` and before bit `n`, else `n`. A word a step."""
    if i >= n:
        return n
    index = i >> 6
    word = u64(file, at + index) & (_ONES << np.uint64(i & 63))
    last = (n - 1) >> 6
    while word == np.uint64(0) and index < last:
        index += 1
        word = u64(file, at + index)
    return min(index * 64 + trailing_zeros(word), n)


@inner
def coded(
    file: Int,
    low: Int,
    flag: Int,
    flag_rank: Int,
    high: Int,
    wide: bool,
    low_bits: Int,
    high_bits: Int,
    highs: Int,
    i: Int,
) -> Int:
    """Element `i` of a coded array: its low part, and the high part where its flag is set."""
    value = packed(file, low, low_bits, i)
    if highs > 0 and bit(file, flag, i):
        index = max(min(rank(file, flag, flag_rank, wide, i), highs - 1), 0)
        value |= packed(file, high, high_bits, index) << low_bits
    return value


@inner
def find_packed(file: Int, at: Int, width: Int, start: Int, stop: Int, value: Int) -> Int:
    """Where `value` stands among the rising elements `start` to `stop`, else -1.

    Binary search whose number of probes depends on the length alone, so that a processor runs
    the probes of several searches at once.
    """
    if start >= stop:
        return -1
    base = start
    n = stop - start
    while n > 1:
        half = n >> 1
        # half where the element is at most `value`, else 0: a condition would become a branch.
        base += half & ~((value - packed(file, at, width, base + half)) >> 63)
        n -= half
    return base if packed(file, at, width, base) == value else -1
