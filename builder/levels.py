"""One sorted range to its part of every trie level.

A keyword adds the nodes behind the longest prefix that it shares with its predecessor, and ends
one node after the longest prefix that it shares with a neighbour. So a range needs, of the
others, the last keyword before it and the first behind it, and its nodes follow those of the
ranges before on every level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes
from flashtrie.builder.pack import bit_length
from flashtrie.builder.sort import SortedRange
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.schema import MAX_LENGTH

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

# Counts of one level of a range, the columns of RangeLevels.counts.
NODES, INNER, TERMINALS, TAILS, LONG_TAILS, LONG_TOKENS = range(6)
COUNTS = 6

# Integers and bits that a range holds for each level, and the count that is their length.
# Bits are packed from bit 0 of a word of their own.
LABELS, SINGLES, LONGS, VALUES = range(4)
FIRST_BITS, INNER_BITS, TERMINAL_BITS, TAIL_BITS, LONG_BITS, END_BITS = range(6)


@dataclass(frozen=True)
class RangeLevels:
    """A range's part of each level.

    counts int64 [depth, 6]. Integers of all levels, level after level: labels uint32 (ranks),
    singles uint32 (one-token tails), longs uint32 (tokens of longer tails), values int64 or None.
    bits: for each kind the words of all levels, each level from a word of its own. histograms
    int64 [3, depth, 33]: labels, singles and longs by bit length.
    """

    counts: I64
    labels: U32
    singles: U32
    longs: U32
    values: I64 | None
    bits: tuple[U64, ...]
    histograms: I64
    max_length: int

    @property
    def depth(self) -> int:
        """Levels on which the range has nodes."""
        return len(self.counts)


def range_levels(keys: SortedRange, before: U32, after: U32) -> RangeLevels:
    """The levels of a range between the keywords `before` and `after` (ranks; empty for none).

    About 50 ns a keyword; for the time of the call 2 bytes a keyword beside the result.
    """
    shared = np.empty(len(keys) + 1, np.uint16)
    counts = np.zeros((MAX_LENGTH + 1, COUNTS), np.int64)
    data, begins, lengths = keys.data, keys.begins, keys.lengths
    depth, max_length = _count(data, begins, lengths, before, after, shared, counts)
    counts = counts[:depth].copy()
    sizes = integer_counts(counts)
    labels, singles, longs = (
        np.empty(int(sizes[kind].sum()), np.uint32) for kind in (LABELS, SINGLES, LONGS)
    )
    row_values = keys.values if keys.values is not None else np.empty(0, np.int64)
    values = np.empty(len(row_values), np.int64)
    words = (bit_counts(counts) + 63) // 64
    bits = tuple(np.zeros(int(words[kind].sum()), np.uint64) for kind in range(len(words)))
    histograms = np.zeros((3, depth, 33), np.int64)
    _fill(
        data,
        begins,
        lengths,
        row_values,
        len(before),
        shared,
        _starts(sizes),
        _starts(words) * 64,
        labels,
        singles,
        longs,
        values,
        bits,
        histograms,
    )
    return RangeLevels(
        counts,
        labels,
        singles,
        longs,
        None if keys.values is None else values,
        bits,
        histograms,
        max_length,
    )


def integer_counts(counts: I64) -> I64:
    """int64 [4, depth]: labels, singles, longs and values on each level."""
    c = counts.T
    return np.stack(
        [
            c[NODES],
            c[TAILS] - c[LONG_TAILS],
            c[LONG_TOKENS],
            c[NODES] - c[INNER] + c[TERMINALS],
        ]
    )


def bit_counts(counts: I64) -> I64:
    """int64 [6, depth]: bits of each kind on each level."""
    c = counts.T
    return np.stack([c[NODES], c[NODES], c[INNER], c[NODES] - c[INNER], c[TAILS], c[LONG_TOKENS]])


def _starts(sizes: I64) -> I64:
    return np.cumsum(sizes, axis=1) - sizes


@jit
def _common(a: U32, a_size: Int, b: U32, b_size: Int) -> Int:
    n = 0
    while n < a_size and n < b_size and a[n] == b[n]:
        n += 1
    return n


@jit
def _count(
    data: U8,
    begins: I64,
    lengths: npt.NDArray[np.int32],
    before: U32,
    after: U32,
    shared: npt.NDArray[np.uint16],
    counts: I64,
) -> tuple[Int, Int]:
    """Fill shared (tokens that keyword i has in common with i - 1) and counts; (depth, longest)."""
    here = np.empty(MAX_LENGTH, np.uint32)
    behind = np.empty(MAX_LENGTH, np.uint32)
    n = len(begins)
    size = codes.decode(data, begins[0], np.int64(lengths[0]), here)
    shared[0] = _common(before, len(before), here, size)
    depth = 0
    longest = 0
    for i in range(n):
        if i + 1 < n:
            next_size = codes.decode(data, begins[i + 1], np.int64(lengths[i + 1]), behind)
            following = _common(here, size, behind, next_size)
        else:
            next_size = len(after)
            following = _common(here, size, after, next_size)
        shared[i + 1] = following
        preceding = np.int64(shared[i])
        end = min(size, max(preceding, following) + 1)
        for d in range(preceding, end):
            counts[d, NODES] += 1
            counts[d, INNER] += 1
        if following == size:
            counts[end - 1, TERMINALS] += 1
        else:
            counts[end - 1, INNER] -= 1
            if size > end:
                counts[end - 1, TAILS] += 1
                if size > end + 1:
                    counts[end - 1, LONG_TAILS] += 1
                    counts[end - 1, LONG_TOKENS] += size - end
        depth = max(depth, end)
        longest = max(longest, size)
        here, behind = behind, here
        size = next_size
    return depth, longest


@jit
def _set(words: U64, at: Int) -> None:
    words[at >> 6] |= np.uint64(1) << np.uint64(at & 63)


@jit
def _fill(
    data: U8,
    begins: I64,
    lengths: npt.NDArray[np.int32],
    row_values: I64,
    before_size: Int,
    shared: npt.NDArray[np.uint16],
    at: I64,
    bit_at: I64,
    labels: U32,
    singles: U32,
    longs: U32,
    values: I64,
    bits: tuple[U64, ...],
    histograms: I64,
) -> None:
    """Write all levels. at, bit_at: where each kind goes on at each level; they are advanced."""
    ranks = np.empty(MAX_LENGTH, np.uint32)
    first_bits, inner_bits, terminal_bits, tail_bits, long_bits, end_bits = bits
    previous_size = before_size
    for i in range(len(begins)):
        size = codes.decode(data, begins[i], np.int64(lengths[i]), ranks)
        preceding, following = np.int64(shared[i]), np.int64(shared[i + 1])
        end = min(size, max(preceding, following) + 1)
        for d in range(preceding, end):
            rank = ranks[d]
            labels[at[LABELS, d]] = rank
            at[LABELS, d] += 1
            histograms[LABELS, d, bit_length(rank)] += 1
            # A new node is a first child unless the keyword before went on from the same parent.
            if d > preceding or previous_size == preceding:
                _set(first_bits, bit_at[FIRST_BITS, d])
            bit_at[FIRST_BITS, d] += 1
            if d + 1 < end or following == size:
                _set(inner_bits, bit_at[INNER_BITS, d])
                if d + 1 == end:
                    _set(terminal_bits, bit_at[TERMINAL_BITS, d])
                bit_at[TERMINAL_BITS, d] += 1
            bit_at[INNER_BITS, d] += 1
        d = end - 1
        if len(values):
            values[at[VALUES, d]] = row_values[i]
            at[VALUES, d] += 1
        if following != size:
            if size > end:
                _set(tail_bits, bit_at[TAIL_BITS, d])
                if size == end + 1:
                    singles[at[SINGLES, d]] = ranks[end]
                    at[SINGLES, d] += 1
                    histograms[SINGLES, d, bit_length(ranks[end])] += 1
                else:
                    _set(long_bits, bit_at[LONG_BITS, d])
                    p = at[LONGS, d]
                    for k in range(end, size):
                        longs[p] = ranks[k]
                        histograms[LONGS, d, bit_length(ranks[k])] += 1
                        p += 1
                    at[LONGS, d] = p
                    bit_at[END_BITS, d] += size - end
                    _set(end_bits, bit_at[END_BITS, d] - 1)
                bit_at[LONG_BITS, d] += 1
            bit_at[TAIL_BITS, d] += 1
        previous_size = size
