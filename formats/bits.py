"""Bitmaps, packed arrays, rank, select and codings in NumPy: what docs/format.md says, as code.

This is the reference that compiled kernels are tested against, and what verify and the small
jobs use. Everything is vectorised; nothing depends on word order of the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats.schema import (
    BLOCK_BITS,
    MAX_LOW_BITS,
    MIN_LOW_BITS,
    SELECT_ONES,
    Coding,
    rank_entries,
    select_entries,
    words,
)

Words = npt.NDArray[np.uint64]

# Values taken at a time by pack and unpack, a multiple of 64: half a MiB stays in the cache.
_BATCH = 1 << 16


def pack_bits(bits: npt.NDArray[np.bool_]) -> Words:
    """Bitmap of a boolean array [n]: uint64 [ceil(n / 64)]. O(n)."""
    padded = np.zeros(words(len(bits)) * 64, np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack_bits(bitmap: Words, n: int) -> npt.NDArray[np.bool_]:
    """The first `n` bits of a bitmap as booleans. O(n)."""
    octets = np.ascontiguousarray(bitmap, "<u8").view(np.uint8)
    return np.unpackbits(octets, count=n, bitorder="little").view(np.bool_)


def pack(values: npt.NDArray[Any], width: int) -> Words:
    """Pack non-negative integers [n] below 2^width, width 0 to 64: uint64 [ceil(n width / 64)].

    64 values fill `width` words exactly, so the j-th values of all such groups go to the same
    place in them: 64 to 128 vector operations a batch. O(n).
    """
    result = np.zeros(words(len(values) * width), np.uint64)
    for start in range(0, len(values) if width else 0, _BATCH):
        batch = values[start : start + _BATCH].astype(np.uint64)
        groups = np.zeros(-(-len(batch) // 64) * 64, np.uint64)
        groups[: len(batch)] = batch
        lanes = groups.reshape(-1, 64)
        packed = np.zeros((len(lanes), width), np.uint64)
        for lane in range(min(64, len(batch))):
            word, shift = divmod(lane * width, 64)
            packed[:, word] |= lanes[:, lane] << np.uint64(shift)
            if shift + width > 64:
                packed[:, word + 1] |= lanes[:, lane] >> np.uint64(64 - shift)
        first = start // 64 * width
        target = result[first : first + packed.size]
        target[:] = packed.reshape(-1)[: len(target)]
    return result


def unpack(packed: Words, width: int, n: int, start: int = 0) -> Words:
    """Elements `start` to `start + n` of a packed array of width 0 to 64. O(n)."""
    result = np.zeros(n, np.uint64)
    aligned = start // 64 * 64
    mask = np.uint64(2**width - 1)
    for batch in range(aligned, start + n if width else 0, _BATCH):
        stop = min(batch + _BATCH, start + n)
        groups = np.zeros((-(-(stop - batch) // 64), width), np.uint64)
        source = packed[batch // 64 * width :][: groups.size]
        groups.reshape(-1)[: len(source)] = source
        lanes = np.empty((len(groups), 64), np.uint64)
        for lane in range(min(64, stop - batch)):
            word, shift = divmod(lane * width, 64)
            value = groups[:, word] >> np.uint64(shift)
            if shift + width > 64:
                value |= groups[:, word + 1] << np.uint64(64 - shift)
            lanes[:, lane] = value & mask
        first = max(batch, start)
        result[first - start : stop - start] = lanes.reshape(-1)[first - batch : stop - batch]
    return result


def rank_directory(bitmap: Words, n: int, dtype: npt.DTypeLike = np.uint32) -> npt.NDArray[Any]:
    """Ones before every 512-bit block of a bitmap of `n` bits: [n // 512 + 1], or [0]. O(n)."""
    result = np.zeros(rank_entries(n), dtype)
    if n:
        result[1:] = np.cumsum(block_ones(bitmap))[: n // BLOCK_BITS]
    return result


def block_ones(bitmap: Words) -> npt.NDArray[np.int64]:
    """Ones in every 512-bit block of a bitmap, the last block maybe a part. O(n)."""
    padded = np.zeros((-(-len(bitmap) // 8), 8), np.uint64)
    padded.reshape(-1)[: len(bitmap)] = bitmap
    ones: npt.NDArray[np.int64] = np.bitwise_count(padded).sum(axis=1, dtype=np.int64)
    return ones


def select_directory(bitmap: Words, n: int) -> npt.NDArray[np.uint32]:
    """The block of every 512th one, and the last block: uint32 [(ones - 1) // 512 + 2]. O(n)."""
    directory = rank_directory(bitmap, n, np.int64)
    result = np.zeros(select_entries(int(np.bitwise_count(bitmap).sum())), np.uint32)
    if len(result):
        sought = np.arange(len(result) - 1) * SELECT_ONES
        result[:-1] = np.searchsorted(directory, sought, side="right") - 1
        result[-1] = (n - 1) // BLOCK_BITS
    return result


def rank(bitmap: Words, directory: npt.NDArray[Any], i: int) -> int:
    """Ones before bit `i`, 0 <= i <= n. One entry and at most 8 words."""
    if not len(directory):
        return 0
    block = i // BLOCK_BITS
    ones = int(directory[block])
    last = i // 64
    ones += int(np.bitwise_count(bitmap[block * 8 : last]).sum())
    if i % 64:
        ones += (int(bitmap[last]) & (2 ** (i % 64) - 1)).bit_count()
    return ones


def select(
    bitmap: Words,
    directory: npt.NDArray[Any],
    select_directory: npt.NDArray[np.uint32],
    k: int,
) -> int:
    """Position of the `k`-th one, from 0. Binary search between two entries, then 8 words."""
    low = int(select_directory[k // SELECT_ONES])
    high = int(select_directory[k // SELECT_ONES + 1])
    # The directory has an entry behind the last block where n is a multiple of 512.
    block = low + int(np.searchsorted(directory[low : high + 1], k, side="right")) - 1
    left = k - int(directory[block])
    for index in range(block * 8, min(block * 8 + 8, len(bitmap))):
        word = int(bitmap[index])
        if left < word.bit_count():
            for _ in range(left):
                word &= word - 1
            return index * 64 + (word & -word).bit_length() - 1
        left -= word.bit_count()
    raise IndexError(f"the bitmap has no one number {k}")


def bit_lengths(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How many values have 0, 1, ... 64 significant bits: int64 [65]. O(n log 64)."""
    bounds = np.array([1 << bits for bits in range(64)], np.uint64)
    lengths = np.searchsorted(bounds, values.astype(np.uint64), side="right")
    return np.bincount(lengths, minlength=65).astype(np.int64)


def choose_coding(histogram: npt.NDArray[np.int64], low_bits: int | None = None) -> Coding:
    """The coding of integers whose bit lengths are counted in `histogram` [65]. O(1).

    The width of low parts that gives the fewest bits, among equals the largest; or `low_bits`
    if given. docs/format.md, Labels.
    """
    n = int(histogram.sum())
    if n == 0:
        return Coding(0, 0, 0)
    longest = int(np.flatnonzero(histogram)[-1])

    def coding(low: int) -> Coding:
        return Coding(low, max(longest - low, 0), int(histogram[low + 1 :].sum()))

    def cost(coding: Coding) -> int:
        low, high, highs = coding
        return n * low + (n + n // 16 + highs * high if high else 0)

    if low_bits is not None:
        return coding(low_bits)
    choices = [coding(low) for low in range(MAX_LOW_BITS, MIN_LOW_BITS - 1, -1)]
    return min(choices, key=cost)  # the first, widest of equals


def encode(
    values: npt.NDArray[Any], low_bits: int | None = None, rank_dtype: npt.DTypeLike = np.uint32
) -> tuple[Words, Words, npt.NDArray[Any], Words, Coding]:
    """Code integers [n] below 2^64: low parts, flags, rank directory of flags, high parts. O(n).

    The last is the coding: that of `choose_coding`.
    """
    values = values.astype(np.uint64)
    coding = choose_coding(bit_lengths(values), low_bits)
    low = pack(values & np.uint64(2**coding.low_bits - 1), coding.low_bits)
    if not coding.high_bits:
        none = np.zeros(0, np.uint64)
        return low, none, np.zeros(0, rank_dtype), none, coding
    high = values >> np.uint64(coding.low_bits)
    flag = pack_bits(high != 0)
    directory = rank_directory(flag, len(values), rank_dtype)
    return low, flag, directory, pack(high[high != 0], coding.high_bits), coding


def decode(low: Words, flag: Words, high: Words, n: int, coding: Coding) -> Words:
    """The `n` integers that `encode` coded. O(n)."""
    values = unpack(low, coding.low_bits, n)
    if coding.high_bits:
        flags = unpack_bits(flag, n)
        parts = unpack(high, coding.high_bits, int(flags.sum()))
        values[flags] |= parts << np.uint64(coding.low_bits)
    return values
