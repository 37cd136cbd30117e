"""What lies between the stages: records by range, and levels by range, in memory or spilled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes, levels
from flashtrie.builder.levels import RangeLevels
from flashtrie.builder.pack import ordered_map
from flashtrie.builder.plan import range_bytes
from flashtrie.builder.scatter import Block, join_range
from flashtrie.builder.spill import Column, Shelf, Spill
from flashtrie.formats.bits import unpack_bits
from flashtrie.formats.schema import MAX_LENGTH

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]


class Records(NamedTuple):
    """Some records of a range: data uint8, how many, and values int64 [rows], empty if none."""

    data: U8
    rows: int
    values: I64


class RangeStore(Protocol):
    """Records by range: `add` from any thread, then `take` each range once."""

    rows: I64

    def add(self, block: Block) -> None:
        """Store a block's records."""

    def take(self, r: int) -> Iterator[Records]:
        """The records of range r: all at once, or where those are too many, part by part."""


class MemoryRanges:
    """Records by range, in memory."""

    def __init__(self, ranges: int) -> None:
        """Nothing in any of `ranges`."""
        self.rows = np.zeros(ranges, np.int64)
        self._blocks: list[Block] = []
        self._lock = threading.Lock()

    def add(self, block: Block) -> None:
        """Store a block's records."""
        with self._lock:
            self._blocks.append(block)
            self.rows += block.rows

    def take(self, r: int) -> Iterator[Records]:
        """The records of range r."""
        data, values = join_range(self._blocks, r)
        yield Records(data, int(self.rows[r]), values)


class SpilledRanges:
    """Records by range, in files of their own."""

    def __init__(self, ranges: int, spill: Spill, name: str) -> None:
        """The files are `name`-NNNNN."""
        self.rows = np.zeros(ranges, np.int64)
        self._lock = threading.Lock()
        self._pieces = spill.pieces(name, ranges)
        self._range_bytes = spill.range_bytes

    def add(self, block: Block) -> None:
        """Store a block's records."""
        with self._lock:
            self.rows += block.rows
        sizes = np.where(block.rows > 0, np.diff(block.bounds), 0)
        columns = [Column(block.data, block.bounds[:-1], sizes)]
        if block.values is not None:
            ends = np.cumsum(8 * block.rows)
            columns.append(
                Column(block.values.view(np.uint8), ends - 8 * block.rows, 8 * block.rows)
            )
        self._pieces.append(*columns)

    def take(self, r: int) -> Iterator[Records]:
        """The records of range r; its files are removed behind the last.

        A range that is too large for its share of the memory has some keyword many times, which no
        splitter divides. It comes in parts that take half of the share.
        """
        pieces, rows = self._pieces, int(self.rows[r])
        if range_bytes(rows, pieces.size(r, 0)) <= self._range_bytes:
            yield Records(pieces.read(r, 0, np.uint8), rows, pieces.read(r, 1, np.int64))
        else:
            yield from self._parts(r)
        pieces.remove(r)

    def _parts(self, r: int) -> Iterator[Records]:
        pieces = self._pieces
        most_rows = self._range_bytes // range_bytes(4, 0)
        most_bytes = self._range_bytes // range_bytes(0, 4)
        start = row = 0
        while start < pieces.size(r, 0):
            data = pieces.read(r, 0, np.uint8, start, most_bytes)
            rows, used = codes.whole_records(data, most_rows)
            yield Records(data[:used], rows, pieces.read(r, 1, np.int64, 8 * row, 8 * rows))
            start, row = start + used, row + rows


def range_store(ranges: int, spill: Spill | None, name: str) -> RangeStore:
    """A store in memory, or with `spill` one in files."""
    return MemoryRanges(ranges) if spill is None else SpilledRanges(ranges, spill, name)


class LevelStore:
    """The levels of all ranges, added in order; the integers and bits of a level, range by range.

    With `spill` they are kept in one file, and read back piece by piece.
    """

    def __init__(self, spill: Spill | None = None) -> None:
        """Without levels."""
        self.counts: I64 = np.zeros((0, levels.COUNTS), np.int64)
        self.histograms: I64 = np.zeros((3, 0, 33), np.int64)
        self.value_range: tuple[int, int] | None = None
        self.max_length = 0
        self._parts: list[KeptLevels] = []
        self._shelf = Shelf(spill, "levels")

    def keep(self, part: RangeLevels) -> KeptLevels:
        """Keep the levels of a range, to be added in their turn. Any thread may call it."""
        return KeptLevels(part, self._shelf)

    def add(self, part: KeptLevels) -> None:
        """Append the levels of the next range."""
        extra = part.depth - len(self.counts)
        if extra > 0:
            self.counts = np.pad(self.counts, ((0, extra), (0, 0)))
            self.histograms = np.pad(self.histograms, ((0, 0), (0, extra), (0, 0)))
        self.counts[: part.depth] += part.counts
        self.histograms[:, : part.depth] += part.histograms
        self.max_length = max(self.max_length, part.max_length)
        if part.value_range is not None:
            low, high = part.value_range
            if self.value_range is not None:
                low, high = min(low, self.value_range[0]), max(high, self.value_range[1])
            self.value_range = low, high
        self._parts.append(part)

    def integers(self, kind: int, d: int, pool: Executor, ahead: int) -> Iterator[Array]:
        """The labels, singles, longs or values of level index d, range by range.

        Threads of the pool read up to `ahead` ranges before they are asked for.
        """

        def read(part: KeptLevels) -> Array:
            return part.integers(kind, d)

        return ordered_map(pool, read, [p for p in self._parts if d < p.depth], ahead)

    def bits(self, kind: int, d: int) -> Iterator[tuple[U64, int]]:
        """The bits of a kind of level index d, range by range, as (words, bits)."""
        for part in self._parts:
            if d < part.depth:
                yield part.bits(kind, d)

    def long_tails(self) -> Iterator[LongTails]:
        """Those of each level of each range, not read yet, in key id order."""
        first = 0
        for d in range(len(self.counts)):
            for part in self._parts:
                if d < part.depth and part.counts[d, levels.LONG_TAILS]:
                    yield LongTails(part, d, first)
                    first += int(part.counts[d, levels.LONG_TAILS])

    def close(self) -> None:
        """Close the file, if any."""
        self._shelf.close()


class LongTails(NamedTuple):
    """The long tails of level index d of a range. `first` is the first's number in key id order."""

    part: KeptLevels
    d: int
    first: int

    @property
    def tails(self) -> int:
        """How many."""
        return int(self.part.counts[self.d, levels.LONG_TAILS])

    @property
    def tokens(self) -> int:
        """How many tokens in all."""
        return int(self.part.counts[self.d, levels.LONG_TOKENS])

    def read(self, most: int | None = None) -> tuple[U32, I64]:
        """(tokens, the position behind each tail); of the first few, with about `most` tokens."""
        limit = None if most is None else max(MAX_LENGTH, most)
        words, n = self.part.bits(levels.END_BITS, self.d, limit)
        ends = np.flatnonzero(unpack_bits(words, n)) + 1
        return self.part.integers(levels.LONGS, self.d, int(ends[-1])), ends


class KeptLevels:
    """The levels of a range on a shelf, with what RangeLevels says of them beside the arrays."""

    def __init__(self, part: RangeLevels, shelf: Shelf) -> None:
        """Keep them. Of the values the lowest and the highest are known afterwards."""
        self.depth = part.depth
        self.counts = part.counts
        self.histograms = part.histograms
        self.max_length = part.max_length
        self.value_range: tuple[int, int] | None = None
        if part.values is not None:
            self.value_range = int(part.values.min()), int(part.values.max())
        self._sizes = levels.integer_counts(part.counts)
        self._starts = np.cumsum(self._sizes, axis=1) - self._sizes
        self._bits = levels.bit_counts(part.counts)
        words = (self._bits + 63) // 64
        self._word_starts = np.cumsum(words, axis=1) - words
        values = part.values if part.values is not None else np.empty(0, np.int64)
        arrays: list[Array] = [part.labels, part.singles, part.longs, values, *part.bits]
        self._arrays = [shelf.put(array) for array in arrays]

    def integers(self, kind: int, d: int, most: int | None = None) -> Array:
        """Integers of a level, or the first of them."""
        n = int(self._sizes[kind, d])
        return self._arrays[kind].get(int(self._starts[kind, d]), n if most is None else most)

    def bits(self, kind: int, d: int, most: int | None = None) -> tuple[U64, int]:
        """(words, bits) of a level, or the first of them."""
        n = int(self._bits[kind, d])
        n = n if most is None else min(n, most)
        words = self._arrays[len(self._sizes) + kind]
        return words.get(int(self._word_starts[kind, d]), (n + 63) // 64), n
