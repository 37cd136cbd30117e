"""The bitmaps and coded arrays of an artifact, read with pread a piece at a time for verify.

Nothing read here is trusted: every place and length that comes from a payload is clamped, so
that a wrong file gives wrong values and no failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats import bits
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import BLOCK_BITS, COLUMN, PARAMETER, SECTION, Coding

# Sections up to this size are kept after the first read: thousands of levels share them.
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Bitmap:
    """A bitmap of `size` bits with `ones` ones, from an element of a section on.

    `rank` and `select` are the elements at which its directories begin in NAME_rank and
    NAME_select, None where it has none.
    """

    where: str
    name: str
    first: int
    size: int
    ones: int
    rank: int | None
    select: int | None = None


@dataclass(frozen=True, slots=True)
class Coded:
    """An array of `size` integers below `limit` in the four sections of a prefix."""

    where: str
    prefix: str
    level: int  # from 1; 0 for the tail store
    size: int
    coding: Coding
    limit: int
    low: int  # elements at which its parts begin
    high: int
    flag: Bitmap


class Payload:
    """Reads parts of sections. Safe for threads; keeps small sections in memory."""

    def __init__(self, artifact: Artifact) -> None:
        """Read nothing yet."""
        self.artifact = artifact
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def read(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements `start` to `stop` of a section, those inside it."""
        if name in self._kept:
            return self._kept[name][start:stop]
        dtype, length = SECTION[name].dtype, self.artifact.lengths[name]
        if length * dtype.itemsize <= _KEPT_BYTES:
            self._kept[name] = self._pread(name, 0, length)
            return self._kept[name][start:stop]
        stop = min(stop, length)
        start = min(max(start, 0), stop)
        return self._pread(name, start, stop)

    def _pread(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        array = np.empty(stop - start, SECTION[name].dtype)
        offset = self.artifact.offsets[name] + start * array.itemsize
        self.artifact.pread_into(array.view(np.uint8).data, offset)
        return array

    def words(self, bitmap: Bitmap, start: int, stop: int) -> bits.Words:
        """The words of bits `start` (a multiple of 64) to `stop`, cut off at the bitmap's end."""
        stop = min(stop, bitmap.size)
        first, last = bitmap.first + start // 64, bitmap.first + -(-stop // 64)
        return self.read(bitmap.name, first, max(first, last))

    def flags(self, bitmap: Bitmap, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Bits `start` (a multiple of 64) to `stop` as booleans, cut off at the bitmap's end."""
        stop = min(stop, bitmap.size)
        return bits.unpack_bits(self.words(bitmap, start, stop), max(stop - start, 0))

    def rank(self, bitmap: Bitmap, start: int) -> int:
        """Ones before bit `start`, a multiple of 512, as the rank directory has it; 0 to ones."""
        if bitmap.rank is None or start == 0:
            return 0
        block = min(start, bitmap.size) // BLOCK_BITS
        entry = self.read(f"{bitmap.name}_rank", bitmap.rank + block, bitmap.rank + block + 1)
        return min(int(entry[0]), bitmap.ones)

    def values(
        self, coded: Coded, start: int, stop: int
    ) -> tuple[bits.Words, npt.NDArray[np.uint64]]:
        """Elements `start` (a multiple of 512) to `stop`, and the high parts among them."""
        coding = coded.coding
        values = np.empty(stop - start, np.uint64)
        low_word = coded.low + start // 64 * coding.low_bits
        low = self._words_of(f"{coded.prefix}_low", low_word, len(values) * coding.low_bits)
        flags = high = highs = np.zeros(1, np.uint64)[:0]
        skipped = 0
        if coding.high_bits:
            flags = _padded(self.words(coded.flag, start, stop), len(values))
            before, count = self.rank(coded.flag, start), int(_ones(flags, len(values)))
            skipped = before % 64
            word = coded.high + before // 64 * coding.high_bits
            size = (skipped + count) * coding.high_bits
            high = self._words_of(f"{coded.prefix}_high", word, size)
            highs = np.empty(count, np.uint64)
        _decode(low, coding.low_bits, flags, high, coding.high_bits, skipped, values, highs)
        return values, highs

    def _words_of(self, name: str, word: int, size: int) -> bits.Words:
        """The words of `size` bits from `word` on, and one more; zero behind the section's end."""
        return _padded(self.read(name, word, word + -(-size // 64)), size)


def _padded(read: bits.Words, size: int) -> bits.Words:
    """All words of `size` bits, and one more, so that no element reaches behind the end."""
    result = np.zeros(-(-size // 64) + 1, np.uint64)
    result[: len(read)] = read
    return result


@jit
def _element(packed: bits.Words, width: Int, i: Int) -> Int:
    """Element `i` of a packed array of width 1 to 64."""
    # Unsigned places: signed ones would be looked at for counting from the end.
    first = np.uint64(i) * np.uint64(width)
    word, shift = first >> np.uint64(6), first & np.uint64(63)
    # A shift by 64 in two: what the next word has.
    behind = packed[word + np.uint64(1)] << np.uint64(1) << (np.uint64(63) - shift)
    mask = np.uint64(2**64 - 1) >> np.uint64(64 - width)
    return (packed[word] >> shift | behind) & mask


@jit
def _flagged(flags: bits.Words, i: Int) -> Int:
    place = np.uint64(i)
    return flags[place >> np.uint64(6)] >> (place & np.uint64(63)) & np.uint64(1)


@jit
def _ones(flags: bits.Words, n: Int) -> Int:
    """Ones among the first n bits."""
    count = np.uint64(0)
    for i in range(n):
        count += _flagged(flags, i)
    return count


@jit
def _decode(
    low: bits.Words,
    low_bits: Int,
    flags: bits.Words,
    high: bits.Words,
    high_bits: Int,
    skipped: Int,
    values: bits.Words,
    highs: bits.Words,
) -> None:
    """Put low and high parts together, without the GIL; `skipped` high parts come before."""
    if low_bits:
        for i in range(len(values)):
            values[i] = _element(low, low_bits, i)
    else:
        values[:] = 0
    if not high_bits:
        return
    k = 0
    for i in range(len(values)):
        if _flagged(flags, i):
            highs[k] = _element(high, high_bits, skipped + k)
            values[i] |= highs[k] << np.uint64(low_bits)
            k += 1


def root(artifact: Artifact) -> Bitmap:
    """The bitmap of tokens that begin a keyword."""
    header = artifact.header
    nodes = int(header.level_table[0, COLUMN["nodes"]])
    return Bitmap("root", "root", 0, header.alphabet_size, nodes, 0)


def store_end(artifact: Artifact) -> Bitmap:
    """The bitmap of last tokens of tails; an indexed artifact has no directories of it."""
    header = artifact.header
    directory = 0 if header.tails == "implicit" else None
    size, ones = header.store_tokens, header.store_tails
    return Bitmap("tail store", "store_end", 0, size, ones, directory, directory)


def level_bitmaps(artifact: Artifact, d: int) -> dict[str, Bitmap]:
    """The bitmaps of level `d` (from 1) but those of coded arrays, by section."""
    row = artifact.parameters[d - 1]
    nodes, inner, terminals, tails, long_tails = (int(value) for value in row[:5])
    below = artifact.header.level_table[d:, COLUMN["nodes"]]
    shape = {
        "inner": (nodes, inner),
        "louds": (int(below[0]) if len(below) else 0, inner),
        "terminal": (inner, terminals),
        "tail": (nodes - inner, tails),
        "tail_long": (tails, long_tails),
    }
    return {
        name: Bitmap(
            f"level {d}",
            name,
            int(row[PARAMETER[f"{name}_offset"]]),
            size,
            ones,
            int(row[PARAMETER[f"{name}_rank_offset"]]),
            int(row[PARAMETER["louds_select_offset"]]) if name == "louds" else None,
        )
        for name, (size, ones) in shape.items()
    }


def coded_arrays(artifact: Artifact) -> Iterator[Coded]:
    """The coded arrays that have elements: of all levels, then the tail store."""
    header = artifact.header
    for d, row in enumerate(artifact.parameters, 1):
        nodes, tails, long_tails = (int(row[COLUMN[c]]) for c in ("nodes", "tails", "long_tails"))
        for prefix, size, limit in (
            ("label", nodes if d > 1 else 0, header.alphabet_size),
            ("tail_token", tails - long_tails, header.alphabet_size),
            ("tail_index", long_tails if header.tails == "indexed" else 0, header.store_tokens),
        ):
            first = COLUMN[f"{prefix}_low_bits"]
            coding = Coding(*(int(value) for value in row[first : first + 3]))
            at = [
                int(row[PARAMETER[f"{prefix}_{part}_offset"]])
                for part in ("low", "flag", "flag_rank", "high")
            ]
            if size:
                yield _coded(f"level {d}", prefix, d, size, coding, limit, at)
    if header.store_tokens:
        yield _coded(
            "tail store",
            "store",
            0,
            header.store_tokens,
            header.store,
            header.alphabet_size,
            [0, 0, 0, 0],
        )


def _coded(
    where: str, prefix: str, level: int, size: int, coding: Coding, limit: int, at: list[int]
) -> Coded:
    low, flag, flag_rank, high = at
    flags = size if coding.high_bits else 0
    bitmap = Bitmap(where, f"{prefix}_flag", flag, flags, coding.highs, flag_rank)
    return Coded(where, prefix, level, size, coding, limit, low, high, bitmap)
