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
        n = stop - start
        low_word = coded.low + start // 64 * coding.low_bits
        end_word = low_word + -(-n * coding.low_bits // 64)
        values = bits.unpack(
            self.read(f"{coded.prefix}_low", low_word, end_word), coding.low_bits, n
        )
        if not coding.high_bits:
            return values, np.zeros(0, np.uint64)
        flags = self.flags(coded.flag, start, stop)
        before, count = self.rank(coded.flag, start), int(flags.sum())
        skipped = before % 64
        word = coded.high + before // 64 * coding.high_bits
        end_word = word + -(-(skipped + count) * coding.high_bits // 64)
        packed = self.read(f"{coded.prefix}_high", word, end_word)
        highs = bits.unpack(packed, coding.high_bits, count, skipped)
        values[flags] |= highs << np.uint64(coding.low_bits)
        return values, highs


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
