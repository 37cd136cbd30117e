"""The order of candidates as 64-bit keys, their selection and their sort; linear, all of it.

A key holds the score so that falling scores are rising integers (32 bits), then the beam and the
proposal (16 bits each): unique within a step, and smaller is better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import (
    float_bits,
    float_of_bits,
    i64,
    leading_zeros,
    pointer_i64,
    pointer_u32,
    pointer_u64,
)
from flashtrie.cpu.memory import Array
from flashtrie.formats.jit import Int

_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS
_FEW = 32  # where insertion is faster than counting
_SIGN = 0x80000000
_MAGNITUDE = 0x7FFFFFFF


class Candidates(NamedTuple):
    """Keys, and the node of each."""

    key: Array  # uint64
    node: Array  # uint32
    capacity: int


class Scratch(NamedTuple):
    """What selection and sort overwrite: as long as the longest of the candidates they get."""

    key: Array  # uint64
    node: Array  # uint32
    counts: Array  # int64 [2^11]


def make_candidates(capacity: int) -> Candidates:
    """Room for `capacity` candidates."""
    return Candidates(np.empty(capacity, np.uint64), np.empty(capacity, np.uint32), capacity)


def make_scratch(capacity: int) -> Scratch:
    """For at most `capacity` candidates."""
    return Scratch(
        np.empty(capacity, np.uint64), np.empty(capacity, np.uint32), np.empty(_RADIX, np.int64)
    )


@inner
def candidates_at(table: Int) -> Candidates:
    """Pointers to what a part of a memory.table_of names."""
    return Candidates(pointer_u64(i64(table, 0)), pointer_u32(i64(table, 1)), i64(table, 2))


@inner
def scratch_at(table: Int) -> Scratch:
    """Pointers to what a part of a memory.table_of names."""
    return Scratch(
        pointer_u64(i64(table, 0)), pointer_u32(i64(table, 1)), pointer_i64(i64(table, 2))
    )


@inner
def order_key(score: np.float32, beam: Int, position: Int) -> Any:
    """The key of a candidate with a finite score that is not -0.0."""
    bits = float_bits(score)
    falling = bits if bits & _SIGN else bits ^ _MAGNITUDE
    return np.uint64((falling << 32) | (beam << 16) | position)


@inner
def score_of(key: np.uint64) -> Any:
    """The score in a key."""
    falling = np.int64(key >> np.uint64(32))
    return float_of_bits(falling if falling & _SIGN else falling ^ _MAGNITUDE)


@inner
def cut(candidates: Candidates, n: Int, most: Int, scratch: Scratch) -> tuple[Int, np.uint64]:
    """Keep the first `most` in order of `n` >= `most` candidates, in the order they stand in.

    How many are left, and the last key in order of these.
    """
    keys, nodes = candidates.key, candidates.node
    worst = _nth_key(candidates, n, most - 1, scratch)
    kept = 0
    for i in range(n):
        key = keys[i]
        keys[kept] = key
        nodes[kept] = nodes[i]
        kept += 1 if key <= worst else 0
        if kept == most:  # only a wrong payload gives one key twice
            break
    return kept, worst


@inner
def best(candidates: Candidates, n: Int, most: Int, scratch: Scratch) -> Int:
    """Leave the first `most` of `n` candidates, sorted; how many there are."""
    if n > most:
        n, _ = cut(candidates, n, most, scratch)
    sort(candidates, n, scratch)
    return n


@inner
def _nth_key(candidates: Candidates, n: Int, k: Int, scratch: Scratch) -> Any:
    """The k-th smallest, from 0, of n > k keys: counts by 2,048 ranges, then within one of them."""
    counts = scratch.counts
    source = candidates.key
    while True:
        least = most = source[0]
        for i in range(1, n):
            least = min(least, source[i])
            most = max(most, source[i])
        shift = np.uint64(max(64 - leading_zeros(most - least) - _RADIX_BITS, 0))
        for digit in range(_RADIX):
            counts[digit] = 0
        for i in range(n):
            counts[np.int64((source[i] - least) >> shift)] += 1
        digit = 0
        while k >= counts[digit]:
            k -= counts[digit]
            digit += 1
        if shift == np.uint64(0):
            return least + np.uint64(digit)
        kept = 0
        for i in range(n):
            key = source[i]
            scratch.key[kept] = key
            kept += 1 if np.int64((key - least) >> shift) == digit else 0
        source = scratch.key
        n = kept


@inner
def sort(candidates: Candidates, n: Int, scratch: Scratch) -> None:
    """Sort `n` candidates.

    They come by beam, so that a stable sort by the score alone is nearly always all: it is tried
    before the sort by all bits.
    """
    keys, nodes = candidates.key, candidates.node
    if n <= _FEW:
        for i in range(1, n):
            key, node = keys[i], nodes[i]
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j], nodes[j] = keys[j - 1], nodes[j - 1]
                j -= 1
            keys[j], nodes[j] = key, node
        return
    first_bit = 64
    while True:
        falls = False
        for i in range(1, n):
            falls |= keys[i] < keys[i - 1]
        if not falls:
            break
        first_bit -= 32
        _sort_from_bit(candidates, n, scratch, first_bit)


@inner
def _sort_from_bit(candidates: Candidates, n: Int, scratch: Scratch, first_bit: Int) -> None:
    """Stable counting sorts by the bits from `first_bit` on, lowest digit first."""
    keys, nodes, counts = candidates.key, candidates.node, scratch.counts
    least = most = keys[0]
    for i in range(1, n):
        least = min(least, keys[i])
        most = max(most, keys[i])
    # The bits below are cleared, for a borrow from them would break ties.
    least = least >> np.uint64(first_bit) << np.uint64(first_bit)
    mask = np.uint64(_RADIX - 1)
    for bit in range(first_bit, 64 - leading_zeros(most - least), _RADIX_BITS):
        shift = np.uint64(bit)
        for digit in range(_RADIX):
            counts[digit] = 0
        for i in range(n):
            counts[np.int64((keys[i] - least) >> shift & mask)] += 1
        total = 0
        for digit in range(_RADIX):
            count = counts[digit]
            counts[digit] = total
            total += count
        for i in range(n):
            at = np.int64((keys[i] - least) >> shift & mask)
            place = counts[at]
            counts[at] = place + 1
            scratch.key[place], scratch.node[place] = keys[i], nodes[i]
        for i in range(n):
            keys[i], nodes[i] = scratch.key[i], scratch.node[i]
