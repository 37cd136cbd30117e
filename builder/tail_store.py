"""The indexed tail store: where each distinct tail goes, and the suffix index of every tail.

All passes go range by range over the groups of `tails`, and what a pass leaves for the next is
kept on a shelf, so that a build that spills holds a few ranges at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.builder.pack import bit_length, ordered_map
from flashtrie.builder.ranges import LevelStore
from flashtrie.builder.spill import Kept, Shelf
from flashtrie.builder.tails import TailGroups, Workshop, tail_batches
from flashtrie.formats import bits
from flashtrie.formats.jit import Int, jit

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

_LEAST_PIECE = 1 << 20  # elements of the store, or suffix indices, made at a time


@dataclass(frozen=True)
class _Placed:
    """A range of groups with the store position behind each group that is not chained.

    following is the position behind the first such group of the ranges after it.
    """

    groups: TailGroups
    ends: Kept
    entries: int
    following: int

    def begins(self) -> I64:
        """The store position of each group's tail: int64 [groups]."""
        entry_of, ends = self._entries()
        lengths = self.groups.lengths.get(0, self.groups.size)
        result: I64 = np.append(ends, self.following)[entry_of] - lengths
        return result

    def _entries(self) -> tuple[I64, I64]:
        """(how many groups before each group are not chained, positions behind those groups)."""
        kept = ~self.groups.chains()
        return np.cumsum(kept) - kept, self.ends.get(0, self.entries)


class TailStore:
    """The store of one key set, placed but not written.

    tokens: its length; tails: how many it keeps, of all_tails; token_histogram int64 [65] and
    index_histograms int64 [levels, 65]: bit lengths of its tokens, and of the suffix indices on
    each level.
    """

    def __init__(
        self, ranges: Sequence[TailGroups], first_long: I64, shelf: Shelf, workshop: Workshop
    ) -> None:
        """Place the groups. first_long int64 [levels + 1]: long tails before each level."""
        self._workshop = workshop
        self.all_tails = int(first_long[-1])
        self.tokens = stored_tokens(ranges)
        self.tails = sum(kept_tails(groups) for groups in ranges)
        self.token_histogram = sum((g.histogram for g in ranges), np.zeros(65, np.int64))
        self._placed = _place(ranges, shelf)

        def count(placed: _Placed) -> I64:
            histograms = np.zeros((len(first_long) - 1, 65), np.int64)
            begins = placed.begins()
            for members in placed.groups.members:
                _count_indices(*members.get(), begins, first_long, histograms)
            return histograms

        self.index_histograms = np.zeros((len(first_long) - 1, 65), np.int64)
        for histograms in ordered_map(workshop.pool, count, self._placed, workshop.threads):
            self.index_histograms += histograms

    def write_to(self, store: LevelStore) -> WrittenStore:
        """What is to be written, from the tails of `store`."""
        return WrittenStore(self, store, self._placed, self._workshop)


class WrittenStore:
    """The suffix indices in key id order, and the tokens of the store, piece by piece.

    A piece is as much as the memory allows, all of it if nothing is spilled. For each piece of
    indices all groups are read once, for each piece of tokens all indices and all tails.
    """

    def __init__(
        self,
        plan: TailStore,
        store: LevelStore,
        placed: Sequence[_Placed],
        workshop: Workshop,
    ) -> None:
        """Nothing is read yet."""
        self._size = plan.tokens
        self._tails = plan.all_tails
        self._dtype = np.uint32 if plan.tokens < 2**32 else np.int64
        self._store = store
        self._placed = placed
        self._workshop = workshop
        spill = workshop.spill
        # Half of what may wait to be written is for indices, half for tokens.
        self._piece = max(_LEAST_PIECE, spill.buffer_bytes // 16) if spill else 2**62
        self._first = 0
        self._indices: Array = np.empty(0, self._dtype)  # from self._first on

    def ends(self) -> U64:
        """Bitmap of the last position of each kept tail."""
        ends = np.zeros(self._size, np.bool_)
        for placed in self._placed:
            ends[placed.ends.get(0, placed.entries) - 1] = True
        return bits.pack_bits(ends)

    def indices(self, first: int, count: int) -> Iterator[Array]:
        """The suffix indices of long tails `first` to `first + count`, in order."""
        stop = first + count
        while first < stop:
            if not self._first <= first < self._first + len(self._indices):
                self._load(first)
            part = self._indices[first - self._first :][: stop - first]
            yield part
            first += len(part)

    def tokens(self) -> Iterator[Array]:
        """The tokens, ranks uint32, in order."""
        for first in range(0, self._size, self._piece):
            piece = np.empty(min(self._piece, self._size - first), np.uint32)
            for tokens, offsets, ordinal in tail_batches(self._store):
                begins = np.concatenate(list(self.indices(ordinal, len(offsets) - 1)))
                _copy_tails(tokens, offsets, begins, first, piece)
            yield piece

    def _load(self, first: int) -> None:
        """Read the indices of the piece from `first` on."""
        tails = self._tails
        piece = np.empty(min(self._piece, tails - first), self._dtype)
        stop = first + len(piece)

        def fill(placed: _Placed) -> None:
            begins = placed.begins()
            for members in placed.groups.members:
                ordinals, group = members.get()
                inside = (ordinals >= first) & (ordinals < stop)
                piece[ordinals[inside] - first] = begins[group[inside]]

        workshop = self._workshop
        for _ in ordered_map(workshop.pool, fill, self._placed, workshop.threads):
            pass
        self._first, self._indices = first, piece


def kept_tails(groups: TailGroups) -> int:
    """Groups of a range that are not chained."""
    return int(np.count_nonzero(~groups.chains()))


def stored_tokens(ranges: Sequence[TailGroups]) -> int:
    """Tokens of a store of these groups."""
    return int(sum(groups.histogram.sum() for groups in ranges))


def least_index_bits(tails: int) -> int:
    """No suffix indices into a store of `tails` tails take fewer bits.

    Each kept tail is pointed to, the i-th from 0 begins at 2 i or later, and a coded integer takes
    at least its bit length.
    """
    total, bound = 0, 1
    while bound < tails:
        # Those from `bound` to 2 bound - 1 have one bit more than those before, twice them another.
        total += (min(2 * bound, tails) - bound) * (bound.bit_length() + 1)
        bound *= 2
    return total


def _place(ranges: Sequence[TailGroups], shelf: Shelf) -> list[_Placed]:
    """Give the groups that are not chained their places, by falling use, then in order."""
    uses: list[tuple[Kept, int]] = []
    totals: dict[int, int] = {}  # tokens of the tails of each use
    carry = 0  # uses of the groups that are chained to the next range's first entry
    for groups in ranges:
        own = np.flatnonzero(~groups.chains())
        counts = groups.uses.get(0, groups.size).astype(np.int64)
        entry_uses = np.zeros(0, np.int64)
        if len(own):
            starts = np.concatenate([np.zeros(1, np.int64), own[:-1] + 1])
            entry_uses = np.add.reduceat(counts[: own[-1] + 1], starts)
            entry_uses[0] += carry
            carry = int(counts[own[-1] + 1 :].sum())
        else:
            carry += int(counts.sum())
        lengths = groups.lengths.get(0, groups.size)[own]
        kinds, which = np.unique(entry_uses, return_inverse=True)
        sums = np.bincount(which, weights=lengths, minlength=len(kinds)).astype(np.int64)
        for use, size in zip(kinds.tolist(), sums.tolist(), strict=True):
            totals[use] = totals.get(use, 0) + size
        uses.append((shelf.put(entry_uses), len(own)))
    at: dict[int, int] = {}  # where the next tail of each use goes
    position = 0
    for use in sorted(totals, reverse=True):
        at[use] = position
        position += totals[use]
    placed = []
    for groups, (kept, entries) in zip(ranges, uses, strict=True):
        lengths = groups.lengths.get(0, groups.size)[~groups.chains()]
        placed.append((groups, shelf.put(_ends(kept.get(0, entries), lengths, at)), entries))
    result: list[_Placed] = []
    following = 0
    for groups, ends, entries in reversed(placed):
        result.append(_Placed(groups, ends, entries, following))
        if entries:
            following = int(ends.get(0, 1)[0])
    return result[::-1]


def _ends(uses: I64, lengths: npt.NDArray[np.uint16], at: dict[int, int]) -> I64:
    """The positions behind the tails of one range; moves `at` behind them."""
    kinds, which = np.unique(uses, return_inverse=True)
    order = np.argsort(which, kind="stable")
    behind = np.cumsum(lengths[order], dtype=np.int64)
    last = np.cumsum(np.bincount(which, minlength=len(kinds))) - 1
    before = np.concatenate([np.zeros(1, np.int64), behind[last[:-1]]]) if len(kinds) else behind
    base = np.array([at[use] for use in kinds.tolist()], np.int64) - before
    ends = np.empty(len(uses), np.int64)
    ends[order] = behind + base[which[order]]
    for use, end in zip(kinds.tolist(), (base + behind[last]).tolist(), strict=True):
        at[use] = end
    return ends


@jit
def _count_indices(
    ordinals: I64, group: I32, begins: I64, first_long: I64, histograms: I64
) -> None:
    """Add the bit length of each tail's suffix index to its level's histogram."""
    level = 0
    for i in range(len(ordinals)):
        ordinal = ordinals[i]
        # Ordinals mostly rise, so that the level seldom changes.
        while ordinal < first_long[level]:
            level -= 1
        while ordinal >= first_long[level + 1]:
            level += 1
        histograms[level, bit_length(begins[group[i]])] += 1


@jit
def _copy_tails(tokens: U32, offsets: I64, begins: Array, first: Int, piece: U32) -> None:
    """Copy each tail to where it begins in the store, of which `piece` is what is from `first` on.

    Tails that are kept together write the same tokens.
    """
    for i in range(len(offsets) - 1):
        begin = np.int64(begins[i]) - first
        for k in range(max(-begin, 0), min(offsets[i + 1] - offsets[i], len(piece) - begin)):
            piece[begin + k] = tokens[offsets[i] + k]
