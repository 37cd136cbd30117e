"""Which tokens occur, how often, and the ranks that follow from it.

Small ids are counted in a table for each thread, large ones are sorted and merged, so that ids near
2^32 cost no more memory than there are of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flashtrie.builder.codes import code_words
from flashtrie.formats.jit import Int, jit

_SPARSE_BATCH = 1 << 20
# A dense token -> rank table is used while it has at most this many entries a token.
_DENSE_ENTRIES = 16
# Bytes a token while counts are merged and ranks are found, and bytes an entry of that table.
_TOKEN_BYTES, _ENTRY_BYTES = 52, 8

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


class TokenCounter:
    """Token frequencies over any number of batches and threads.

    About 3 ns a token; memory is 8 bytes a thread for each id below `dense_tokens` up to the
    largest, and up to 60 bytes for each distinct larger id.
    """

    def __init__(self, dense_tokens: int) -> None:
        """Nothing counted."""
        self._dense_tokens = dense_tokens
        self._local = threading.local()
        self._parts: list[_Part] = []
        self._runs: list[tuple[U32, I64]] = []
        self._lock = threading.Lock()

    def add(self, tokens: U32) -> None:
        """Count a batch of tokens. Called from any thread."""
        part: _Part | None = getattr(self._local, "part", None)
        if part is None:
            part = self._local.part = _Part(self._dense_tokens)
            with self._lock:
                self._parts.append(part)
        large = part.add(tokens)
        if large is not None:
            self._add_run(large)

    def counts(self) -> tuple[U32, I64]:
        """The distinct tokens, rising, and how often each was counted. Call it once, at the end."""
        for part in self._parts:
            self._add_run(part.take())
        ids, counts = self._small()
        while len(self._runs) > 1:
            self._runs[-2:] = [_merged(*self._runs[-2:])]
        if self._runs:
            large, large_counts = self._runs.pop()
            ids, counts = np.concatenate([ids, large]), np.concatenate([counts, large_counts])
        return ids, counts

    def _small(self) -> tuple[U32, I64]:
        """The ids in the tables, which go."""
        table = np.empty(0, np.int64)
        while self._parts:
            part = self._parts.pop()
            counted, part.table = part.table[: part.size], table[:0]  # its thread keeps the part
            table, other = sorted((table, counted), key=len, reverse=True)
            table[: len(other)] += other
            del counted, other
        ids = np.flatnonzero(table).astype(np.uint32)
        return ids, table[ids]

    def _add_run(self, tokens: U32) -> None:
        if not len(tokens):
            return
        ids, counts = np.unique(tokens, return_counts=True)
        with self._lock:
            self._runs.append((ids, counts.astype(np.int64)))
            # Runs of falling size, so that each id is merged a logarithmic number of times.
            while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
                self._runs[-2:] = [_merged(*self._runs[-2:])]


class _Part:
    """What one thread has counted: a table of the small ids, and large ones that wait."""

    def __init__(self, dense_tokens: int) -> None:
        # Its pages take no memory before something is counted in them.
        self.table: I64 = np.zeros(dense_tokens, np.int64)
        self.size = 0  # nothing is counted from here on
        self._waiting: list[U32] = []

    def add(self, tokens: U32) -> U32 | None:
        """Count; returns the large ids when there are enough to be sorted."""
        size, others = _count(tokens, self.table)
        self.size = max(self.size, int(size))
        if not others:
            return None
        self._waiting.append(tokens[tokens >= len(self.table)])
        return self.take() if sum(map(len, self._waiting)) >= _SPARSE_BATCH else None

    def take(self) -> U32:
        """The large ids that wait."""
        waiting, self._waiting = self._waiting, []
        return np.concatenate(waiting) if waiting else np.empty(0, np.uint32)


def _merged(a: tuple[U32, I64], b: tuple[U32, I64]) -> tuple[U32, I64]:
    size = len(a[0]) + len(b[0])
    ids, counts = np.empty(size, np.uint32), np.empty(size, np.int64)
    n = _merge(*a, *b, ids, counts)
    return ids[:n].copy(), counts[:n].copy()


@jit
def _count(tokens: U32, table: I64) -> tuple[Int, Int]:
    """Add 1 to table[t] for each token below its length; (the largest such + 1, other tokens)."""
    size = np.int64(0)
    others = 0
    for t in tokens:
        if t < len(table):
            table[t] += 1
            size = max(size, np.int64(t) + 1)
        else:
            others += 1
    return size, others


@jit
def _merge(a: U32, a_counts: I64, b: U32, b_counts: I64, ids: U32, counts: I64) -> Int:
    """Merge two runs of rising ids, counts of equal ids added; returns the length."""
    i = j = n = 0
    while i < len(a) or j < len(b):
        from_a = j == len(b) or (i < len(a) and a[i] <= b[j])
        from_b = i == len(a) or (j < len(b) and b[j] <= a[i])
        count = 0
        if from_a:
            ids[n] = a[i]
            count += a_counts[i]
            i += 1
        if from_b:
            ids[n] = b[j]
            count += b_counts[j]
            j += 1
        counts[n] = count
        n += 1
    return n


@dataclass(frozen=True)
class Alphabet:
    """The distinct tokens: `ids` uint32 [A] by rank, and the way to their codes.

    `code_of` uint64 is indexed by token while it is at most 16 times as long as the alphabet; else
    by the position of the token in `sorted_ids` uint32 [A].
    """

    ids: U32
    code_of: U64
    sorted_ids: U32 | None

    @classmethod
    def from_counts(cls, ids: U32, counts: I64) -> Alphabet:
        """Ranks by falling count, ties by id. `ids` are distinct and rising."""
        rare = int(counts.max(initial=0)) - counts
        if int(rare.max(initial=0)) < 2**31:
            # One sort of 64-bit integers is several times as fast as a stable sort of pairs.
            rare <<= 32
            rare |= ids
            rare.sort()
            by_rank = rare.astype(np.uint32)  # the lower half
        else:
            by_rank = ids[np.argsort(rare, kind="stable")]
        del rare
        codes = rank_codes(len(ids))
        if entries := _table_entries(ids):
            code_of = np.zeros(entries, np.uint64)
            code_of[by_rank] = codes
            return cls(by_rank, code_of, None)
        code_of = np.empty(len(ids), np.uint64)
        code_of[np.searchsorted(ids, by_rank)] = codes
        return cls(by_rank, code_of, ids)

    def covers(self, tokens: U32) -> bool:
        """Whether no token lies behind the last of the alphabet. Others need not be in it."""
        last = len(self.code_of) - 1 if self.sorted_ids is None else int(self.sorted_ids[-1])
        return int(tokens.max(initial=0)) <= last

    def entries(self, tokens: U32) -> U32:
        """Where `code_of` has the codes of `tokens`, all of which are in the alphabet."""
        if self.sorted_ids is None:
            return tokens
        return np.searchsorted(self.sorted_ids, tokens).astype(np.uint32)


def alphabet_bytes(ids: U32) -> int:
    """The most that `Alphabet.from_counts` of these distinct, rising ids holds at a time."""
    return _TOKEN_BYTES * len(ids) + _ENTRY_BYTES * _table_entries(ids)


def _table_entries(ids: U32) -> int:
    """The length of the table from token to code, or 0 where it would be too sparse."""
    span = int(ids[-1]) + 1 if len(ids) else 0
    return span if span <= _DENSE_ENTRIES * len(ids) else 0


def rank_codes(size: int) -> U64:
    """The codes of ranks 0 to size - 1: uint64 [size]."""
    result = np.empty(size, np.uint64)
    code_words(np.arange(size, dtype=np.uint32), result)
    return result
