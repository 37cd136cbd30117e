"""From tokens to ranks: a dense table, or a hash where the vocabulary is sparse."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import prefetch, u32, u64
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.search import (
    ABSENT as ABSENT,  # also the rank of a token outside the alphabet
)

_MAX_TABLE_FACTOR = 16  # entries of a dense table per token of the alphabet
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing


class Ranks(NamedTuple):
    """Where to look a token up: in a dense table, or where that is empty, in a hash."""

    table: int  # address of uint32 [table_size], by token
    table_size: int
    hashed: int  # address of uint64 [2^(64 - shift)]: token in the high half, rank in the low
    shift: int


class RankTable:
    """The alphabet inverted: 4 bytes a token of the vocabulary while V <= 16 A, else 16 to 32 A.

    O(V) or O(A) to make. Whoever passes `ranks` to a kernel must hold this.
    """

    def __init__(self, alphabet: npt.NDArray[np.uint32], vocab_size: int) -> None:
        """Of the section `alphabet`, which is payload and may be anything."""
        dense = vocab_size <= _MAX_TABLE_FACTOR * len(alphabet)
        bits = 0 if dense else (2 * len(alphabet) - 1).bit_length()
        self._table = np.full(vocab_size if dense else 0, ABSENT, np.uint32)
        self._hashed = np.full(1 << bits, _EMPTY, np.uint64)
        shift = 64 - bits
        if dense:
            _fill_table(self._table, alphabet)
        else:
            _fill_hash(self._hashed, shift, alphabet)
        self.ranks = Ranks(
            self._table.ctypes.data, len(self._table), self._hashed.ctypes.data, shift
        )


@jit
def _fill_table(table: npt.NDArray[np.uint32], alphabet: npt.NDArray[np.uint32]) -> None:
    for rank in range(len(alphabet)):
        token = np.int64(alphabet[rank])
        if token < len(table):
            table[token] = rank


@jit
def _fill_hash(
    hashed: npt.NDArray[np.uint64], shift: Int, alphabet: npt.NDArray[np.uint32]
) -> None:
    """At most half of the slots are taken, so that every chain ends."""
    mask = len(hashed) - 1
    for rank in range(len(alphabet)):
        token = np.uint64(alphabet[rank])
        slot = np.int64((token * _MULTIPLIER) >> np.uint64(shift))
        while hashed[slot] != _EMPTY and hashed[slot] >> np.uint64(32) != token:
            slot = (slot + 1) & mask
        hashed[slot] = token << np.uint64(32) | np.uint64(rank)


@inner
def rank_of(ranks: Ranks, token: Int) -> Int:
    """Rank of a token >= 0, or ABSENT. One load, or one or two."""
    if ranks.table_size > 0:
        return u32(ranks.table, token) if token < ranks.table_size else ABSENT
    key = np.uint64(token)
    slot = np.int64((key * _MULTIPLIER) >> np.uint64(ranks.shift))
    mask = (1 << (64 - ranks.shift)) - 1
    entry: Any = u64(ranks.hashed, slot)
    while entry != _EMPTY:
        if entry >> np.uint64(32) == key:
            return np.int64(entry & np.uint64(0xFFFFFFFF))
        slot = (slot + 1) & mask
        entry = u64(ranks.hashed, slot)
    return ABSENT


@inner
def prefetch_rank_of(ranks: Ranks, token: Int) -> None:
    """Ask for what `rank_of` will read first."""
    if ranks.table_size > 0:
        prefetch(ranks.table, token, 4)
    else:
        slot = (np.uint64(token) * _MULTIPLIER) >> np.uint64(ranks.shift)
        prefetch(ranks.hashed, np.int64(slot), 8)
