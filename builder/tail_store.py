"""The indexed tail store: where each distinct tail goes, and the suffix index of every tail.

All passes go range by range over the groups of `tails`, and what a pass leaves for the next is
kept on a shelf, so that a build that spills holds a few ranges at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from flashtrie.builder.pack import bit_length, ordered_map
from flashtrie.builder.ranges import LevelStore, LongTails
from flashtrie.builder.spill import Kept, Shelf
from flashtrie.builder.tails import TailGroups, Workshop, read_tails, tail_batches
from flashtrie.formats import bits
from flashtrie.formats.jit import Int, jit

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]
_T = TypeVar("_T")

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
        self._placed = _place(ranges, shelf, workshop)

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
            workshop, batches = self._workshop, tail_batches(self._store)
            read = ordered_map(workshop.pool, _read, batches, workshop.threads)
            for tokens, offsets, ordinal in read:
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


def _read(batch: Sequence[LongTails]) -> tuple[U32, I64, int]:
    """(tokens, offsets, number of the first) of some long tails."""
    return *read_tails(batch), batch[0].first


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


def _place(ranges: Sequence[TailGroups], shelf: Shelf, workshop: Workshop) -> list[_Placed]:
    """Give the groups that are not chained their places, by falling use, then in order.

    What depends on the ranges before is a few numbers each; the rest is done by all threads.
    """

    def each(work: Callable[[int], _T]) -> Iterator[_T]:
        return ordered_map(workshop.pool, work, range(len(ranges)), workshop.threads)

    carries: list[int] = []  # uses of the groups before that end this range's first tail
    carry = 0
    for open_end, uses in each(lambda r: _uses_behind(ranges[r])):
        carries.append(carry)
        carry = uses + (carry if open_end else 0)
    entries: list[_Entries] = []
    totals: dict[int, int] = {}  # tokens of the tails of each use
    for found in each(lambda r: _entries_of(ranges[r], carries[r], shelf)):
        entries.append(found)
        for use, size in zip(found.kinds.tolist(), found.sizes.tolist(), strict=True):
            totals[use] = totals.get(use, 0) + size
    at: dict[int, int] = {}  # where the next tail of each use goes
    position = 0
    for use in sorted(totals, reverse=True):
        at[use] = position
        position += totals[use]
    bases: list[I64] = []
    for found in entries:
        kinds = found.kinds.tolist()
        bases.append(np.array([at[use] for use in kinds], np.int64))
        for use, size in zip(kinds, found.sizes.tolist(), strict=True):
            at[use] += size
    ends = list(each(lambda r: _ends(ranges[r], entries[r], bases[r], shelf)))
    result: list[_Placed] = []
    following = 0
    for r in reversed(range(len(ranges))):
        kept, first_end = ends[r]
        result.append(_Placed(ranges[r], kept, entries[r].size, following))
        if entries[r].size:
            following = first_end
    return result[::-1]


@dataclass(frozen=True)
class _Entries:
    """The `size` groups of a range that are not chained.

    which: for each the index of its use in `kinds` int64, rising; sizes int64: the tokens of all
    of a use.
    """

    size: int
    which: Kept
    kinds: I64
    sizes: I64


def _uses_behind(groups: TailGroups) -> tuple[bool, int]:
    """(whether all groups are chained, uses of those behind the last that is not)."""
    own = np.flatnonzero(~groups.chains())
    counts = groups.uses.get(0, groups.size)
    return not len(own), int(counts[own[-1] + 1 if len(own) else 0 :].sum(dtype=np.int64))


def _entries_of(groups: TailGroups, carry: int, shelf: Shelf) -> _Entries:
    """Those of a range; `carry` are uses of groups before that end its first tail."""
    own = np.flatnonzero(~groups.chains())
    if not len(own):
        none = np.empty(0, np.int64)
        return _Entries(0, shelf.put(none), none, none)
    counts = groups.uses.get(0, groups.size).astype(np.int64)
    uses = np.add.reduceat(counts[: own[-1] + 1], np.append(0, own[:-1] + 1))
    uses[0] += carry
    kinds, which = np.unique(uses, return_inverse=True)
    lengths = groups.lengths.get(0, groups.size)[own]
    sizes = np.bincount(which, weights=lengths, minlength=len(kinds)).astype(np.int64)
    return _Entries(len(own), shelf.put(which), kinds, sizes)


def _ends(groups: TailGroups, entries: _Entries, bases: I64, shelf: Shelf) -> tuple[Kept, int]:
    """The positions behind the tails of a range, whose uses begin at `bases`; and the first."""
    lengths = groups.lengths.get(0, groups.size)[~groups.chains()]
    ends = np.empty(entries.size, np.int64)
    _fill_ends(entries.which.get(0, entries.size), lengths, bases.copy(), ends)
    return shelf.put(ends), int(ends[0]) if entries.size else 0


@jit
def _fill_ends(which: I64, lengths: npt.NDArray[np.uint16], at: I64, ends: I64) -> None:
    for i in range(len(ends)):
        kind = which[i]
        at[kind] += lengths[i]
        ends[i] = at[kind]


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
