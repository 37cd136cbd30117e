"""The indexed tail store: where each distinct tail goes, and the suffix index of every tail.

All passes go range by range over the groups of `tails`, and what a pass leaves for the next is
kept on a shelf, so that a build that spills holds a few ranges at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from flashtrie.builder import levels
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.pack import CHUNK, bit_length, ordered_map
from flashtrie.builder.ranges import LevelStore, LongTails
from flashtrie.builder.spill import Kept, Shelf
from flashtrie.builder.tail_pieces import Marks, Placed, StorePieces, copy_tails, piece_bits
from flashtrie.builder.tails import TailGroups, Workshop, read_tails, tail_batches
from flashtrie.formats.jit import jit
from flashtrie.formats.schema import words

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]
_T = TypeVar("_T")

_TURNS = 3  # the most in which the store is filled


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

        def count(placed: Placed) -> I64:
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
    """The suffix indices in key id order, and the tokens of the store in their order.

    All of both are held if the memory allows, else pieces of them.
    """

    def __init__(
        self,
        plan: TailStore,
        store: LevelStore,
        placed: Sequence[Placed],
        workshop: Workshop,
    ) -> None:
        """Nothing is read yet."""
        self._size = plan.tokens
        self._rank_bits = int(np.flatnonzero(plan.token_histogram).max(initial=0))
        self._store = store
        self._placed = placed
        self._workshop = workshop
        self._marks = Marks(placed, plan.all_tails, plan.tokens, workshop)

    def ends(self) -> U64:
        """Bitmap of the last position of each kept tail."""
        result = np.zeros(words(self._size), np.uint64)

        def read(placed: Placed) -> I64:
            ends: I64 = placed.ends.get(0, placed.entries)
            return ends

        workshop = self._workshop
        for ends in ordered_map(workshop.pool, read, self._placed, workshop.threads):
            _set_ends(ends, result)
        return result

    def indices(self, first: int, count: int) -> Iterator[Array]:
        """The suffix indices of long tails `first` to `first + count`, in order."""
        for marks in self._marks.read(first, count):
            for start in range(0, len(marks), CHUNK):
                yield marks[start : start + CHUNK] >> 1

    def tokens(self) -> Iterator[Array]:
        """The tokens, ranks uint32, in order.

        All tails are read once. In pieces, where the store is more than a quarter as long as they
        are, two or three times: what waits in files beside the levels would be too much.
        """
        workshop = self._workshop
        bits = piece_bits(self._size, workshop)
        if bits is None or workshop.spill is None:
            yield self._all_tokens()
            return
        pieces = -(-self._size >> bits)
        tail_tokens = int(self._store.counts[:, levels.LONG_TOKENS].sum())
        turns = min(_TURNS, pieces, -(-4 * self._size // tail_tokens))
        code_of = rank_codes(1 << self._rank_bits)
        for first, stop in pairwise([pieces * turn // turns for turn in range(turns + 1)]):
            waiting = StorePieces(workshop.spill, bits, range(first, stop), code_of)
            self._each_tail(waiting.add)
            yield from ordered_map(
                workshop.pool, waiting.take, range(first, stop), workshop.threads
            )

    def _all_tokens(self) -> U32:
        result = np.empty(self._size, np.uint32)

        def copy(tokens: U32, offsets: I64, marks: Array) -> None:
            copy_tails(tokens, offsets, marks, result)

        self._each_tail(copy)
        return result

    def _each_tail(self, use: Callable[[U32, I64, Array], None]) -> None:
        """Call `use` with all long tails: some tokens, the offsets of tails in them, and marks."""
        workshop = self._workshop

        def read(tails: tuple[Sequence[LongTails], Array]) -> None:
            batch, marks = tails
            use(*read_tails(batch), marks)

        for _ in ordered_map(workshop.pool, read, self._marked(), workshop.threads):
            pass

    def _marked(self) -> Iterator[tuple[Sequence[LongTails], Array]]:
        """Batches of long tails, not read yet, with their marks."""
        for batch in tail_batches(self._store):
            tails = sum(piece.tails for piece in batch)
            yield batch, np.concatenate(list(self._marks.read(batch[0].first, tails)))


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


def _place(ranges: Sequence[TailGroups], shelf: Shelf, workshop: Workshop) -> list[Placed]:
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
    result: list[Placed] = []
    following = 0
    for r in reversed(range(len(ranges))):
        kept, first_end = ends[r]
        result.append(Placed(ranges[r], kept, entries[r].size, following))
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
def _set_ends(ends: I64, bitmap: U64) -> None:
    """Set the bit before each position."""
    for i in range(len(ends)):
        last = ends[i] - 1
        bitmap[last >> 6] |= np.uint64(1) << np.uint64(last & 63)
