"""The indexed tail store on its way from the ranges of groups to key id order and store order.

What belongs to a tail is known where its group is, range by range, and is wanted elsewhere: its
suffix index by its number, its tokens by their place in the store. Where all fit the memory they
are put there directly. Else they go through files, each for a piece of the tails or of the store,
so that how often ranges and tails are read does not depend on the number of pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes
from flashtrie.builder.pack import ordered_map
from flashtrie.builder.plan import MAX_RANGES
from flashtrie.builder.scatter import encode_rows
from flashtrie.builder.spill import Column, Kept, PieceFiles, Spill
from flashtrie.builder.tails import TailGroups, Workshop
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.schema import MAX_LENGTH

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

_LEAST_BITS, _MOST_BITS = 19, 31  # of a number within a piece
# About what an element takes while it is put into place: a mark twice 4 bytes, or 8, and 4 for the
# place; a token 4 bytes and up to 5 for its code.
_PIECE_BYTES = 16


def piece_bits(elements: int, workshop: Workshop) -> int | None:
    """The binary logarithm of the elements of a piece; None if all may be held at a time."""
    spill = workshop.spill
    if spill is None:
        return None
    bits = max(_LEAST_BITS, (spill.range_bytes // _PIECE_BYTES).bit_length() - 1)
    if elements <= max(1 << bits, (workshop.threads + 1) * spill.range_bytes // _PIECE_BYTES):
        return None
    return min(_MOST_BITS, max(bits, ((elements - 1) // MAX_RANGES).bit_length()))


def _files(spill: Spill, name: str, count: int) -> PieceFiles:
    """Those of marks and those of tokens wait at the same time."""
    return replace(spill, buffer_bytes=spill.buffer_bytes // 2).pieces(name, count)


@dataclass(frozen=True)
class Placed:
    """A range of groups with the store position behind each group that is not chained.

    following is the position behind the first such group of the ranges after it.
    """

    groups: TailGroups
    ends: Kept
    entries: int
    following: int

    def begins(self) -> I64:
        """The store position of each group's tail: int64 [groups]."""
        kept = ~self.groups.chains()
        before: I64 = np.cumsum(kept) - kept  # how many that are not chained
        ends = np.append(self.ends.get(0, self.entries), self.following)
        result: I64 = ends[before] - self.groups.lengths.get(0, self.groups.size)
        return result

    def marks(self, dtype: type) -> Iterator[tuple[I64, Array]]:
        """(which long tails, their marks), in some parts. See Marks."""
        begins, waits = self.begins(), ~self.groups.chains()
        for members in self.groups.members:
            ordinals, group = members.get()
            marks: Array = np.empty(len(ordinals), dtype)
            _mark(group, begins, waits, marks)
            yield ordinals, marks


class Marks:
    """For each long tail in key id order twice its suffix index, and one more for some.

    Those are one tail for each that the store keeps, and its tokens are copied from there.
    """

    def __init__(
        self, placed: Sequence[Placed], tails: int, store_tokens: int, workshop: Workshop
    ) -> None:
        """Nothing is read yet."""
        self._placed = placed
        self._tails = tails
        self._dtype = np.uint32 if store_tokens < 2**31 else np.int64
        self._workshop = workshop
        self._bits = piece_bits(tails, workshop)
        self._files: PieceFiles | None = None
        self._first = 0
        self._held: Array = np.empty(0, self._dtype)  # from self._first on

    def read(self, first: int, count: int) -> Iterator[Array]:
        """The marks of long tails `first` to `first + count`, in order."""
        stop = first + count
        while first < stop:
            if not self._first <= first < self._first + len(self._held):
                self._load(first)
            part = self._held[first - self._first :][: stop - first]
            yield part
            first += len(part)

    def _load(self, first: int) -> None:
        """Hold those of the piece with `first`, or all."""
        self._held = np.empty(0, self._dtype)
        if self._bits is None:
            self._held = self._all()
            return
        if self._files is None:
            self._files = self._scattered(self._bits)
        p = first >> self._bits
        self._first = p << self._bits
        places = self._files.read(p, 0, np.uint32)
        piece = np.empty(len(places), self._dtype)
        _put(places, self._files.read(p, 1, self._dtype), piece)
        self._held = piece

    def _all(self) -> Array:
        result = np.empty(self._tails, self._dtype)

        def put(placed: Placed) -> None:
            for ordinals, marks in placed.marks(self._dtype):
                _put(ordinals, marks, result)

        workshop = self._workshop
        for _ in ordered_map(workshop.pool, put, self._placed, workshop.threads):
            pass
        return result

    def _scattered(self, bits: int) -> PieceFiles:
        """Files of pieces of 2^bits tails: places in the piece uint32, and marks."""
        workshop = self._workshop
        assert workshop.spill is not None
        count = -(-self._tails >> bits)
        files = _files(workshop.spill, "marks", count)

        def put(placed: Placed) -> None:
            for ordinals, marks in placed.marks(self._dtype):
                rows = np.zeros(count, np.int64)
                places, sorted_marks = np.empty(len(marks), np.uint32), np.empty_like(marks)
                _by_piece(ordinals, marks, bits, rows, places, sorted_marks)
                files.append(_column(places, rows), _column(sorted_marks, rows))

        for _ in ordered_map(workshop.pool, put, self._placed, workshop.threads):
            pass
        return files


class StorePieces:
    """Tokens of the store by piece: `add` them from any thread, then `take` each piece once.

    Each tail waits as a record, with the place in its piece where it begins, uint32.
    """

    def __init__(self, spill: Spill, bits: int, pieces: range, code_of: U64) -> None:
        """For `pieces` of 2^bits tokens. code_of: codes of their ranks."""
        self._bits = bits
        self._pieces = pieces
        self._code_of = code_of
        self._files = _files(spill, f"store-{pieces.start}", len(pieces))

    def add(self, tokens: U32, offsets: I64, marks: Array) -> None:
        """Take what belongs to these pieces of some tails."""
        first, count = self._pieces.start, len(self._pieces)
        tails, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        _count_copied(offsets, marks, self._bits, first, tails, sizes)
        behind = np.cumsum(tails)
        begins = np.empty(tails.sum(), np.uint32)
        ends = np.zeros(len(begins) + 1, np.int64)
        copied = np.empty(sizes.sum(), np.uint32)
        _sort_copied(tokens, offsets, marks, self._bits, first, tails, sizes, begins, copied, ends)
        records = encode_rows(copied, ends, self._code_of)
        starts = records.starts[behind - tails]
        sizes = records.starts[behind] - starts
        self._files.append(_column(begins, tails), Column(records.data, starts, sizes))

    def take(self, p: int) -> U32:
        """The tokens of all tails that begin in a piece, uint32: no others lie between them."""
        r = p - self._pieces.start
        begins = self._files.read(r, 0, np.uint32)
        records = self._files.read(r, 1, np.uint8)
        self._files.remove(r)
        piece = np.empty((1 << self._bits) + MAX_LENGTH, np.uint32)
        return piece[: _decode_tails(begins, records, piece)]


def _column(array: Array, counts: I64) -> Column:
    """So many elements for each piece."""
    sizes = counts * array.itemsize
    return Column(array.view(np.uint8), np.cumsum(sizes) - sizes, sizes)


@jit
def _mark(group: I32, begins: I64, waits: Bool, marks: Array) -> None:
    """The mark of each tail. Groups that wait for their copied tail do not any more then."""
    for i in range(len(group)):
        g = group[i]
        marks[i] = begins[g] << 1 | np.int64(waits[g])
        waits[g] = False


@jit
def _put(places: Array, marks: Array, target: Array) -> None:
    for i in range(len(places)):
        target[places[i]] = marks[i]


@jit
def _starts(counts: I64) -> I64:
    """Numba has no cumsum that begins with 0."""
    starts = np.empty(len(counts), np.int64)
    total = np.int64(0)
    for p in range(len(counts)):
        starts[p] = total
        total += counts[p]
    return starts


@jit
def _by_piece(
    ordinals: I64, marks: Array, bits: Int, rows: I64, places: U32, sorted_marks: Array
) -> None:
    """Group marks by piece, with their places in it; count them in `rows`."""
    for i in range(len(ordinals)):
        rows[ordinals[i] >> bits] += 1
    at = _starts(rows)
    for i in range(len(ordinals)):
        p = ordinals[i] >> bits
        k = at[p]
        at[p] += 1
        places[k] = ordinals[i] - (p << bits)
        sorted_marks[k] = marks[i]


@jit
def copy_tails(tokens: U32, offsets: I64, marks: Array, store: U32) -> None:
    """Copy the tails that are to be copied to where they begin in the whole store."""
    for i in range(len(marks)):
        mark = np.int64(marks[i])
        if mark & 1:
            to = mark >> 1
            for k in range(offsets[i], offsets[i + 1]):
                store[to] = tokens[k]
                to += 1


@jit
def _count_copied(
    offsets: I64, marks: Array, bits: Int, first: Int, tails: I64, sizes: I64
) -> None:
    """Tails that are to be copied to each piece from `first` on, and their tokens."""
    for i in range(len(marks)):
        mark = np.int64(marks[i])
        p = (mark >> (bits + 1)) - first
        if mark & 1 and 0 <= p < len(tails):
            tails[p] += 1
            sizes[p] += offsets[i + 1] - offsets[i]


@jit
def _sort_copied(
    tokens: U32,
    offsets: I64,
    marks: Array,
    bits: Int,
    first: Int,
    tails: I64,
    sizes: I64,
    begins: U32,
    copied: U32,
    ends: I64,
) -> None:
    """Group those tails by piece: where they begin in it, their tokens, and the ends of these."""
    tail_at, token_at = _starts(tails), _starts(sizes)
    for i in range(len(marks)):
        mark = np.int64(marks[i])
        p = (mark >> (bits + 1)) - first
        if mark & 1 and 0 <= p < len(tails):
            to = token_at[p]
            for k in range(offsets[i], offsets[i + 1]):
                copied[to] = tokens[k]
                to += 1
            begins[tail_at[p]] = (mark >> 1) - ((first + p) << bits)
            tail_at[p] += 1
            ends[tail_at[p]] = to
            token_at[p] = to


@jit
def _decode_tails(begins: U32, records: U8, piece: U32) -> Int:
    """Put tails into place, the first at 0; the tokens of all."""
    first = np.int64(begins.min()) if len(begins) else np.int64(0)
    at = end = np.int64(0)
    for i in range(len(begins)):
        place = np.int64(begins[i]) - first
        begin, size = codes.record(records, at)
        end = max(end, place + codes.decode(records, begin, size, piece[place:]))
        at = begin + size
    return end
