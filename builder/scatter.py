"""Rows to ranges: each batch is encoded, and its records are grouped by range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes
from flashtrie.formats.jit import jit

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_TOP = 1 << 16  # entries of the table over the first two code bytes


@dataclass(frozen=True)
class Block:
    """A batch of records grouped by range.

    data uint8: the records; bounds int64 [ranges + 1]: the bytes of each range; rows int64
    [ranges]: its records; values int64 [rows of all ranges], in the same order, or None.
    """

    data: U8
    bounds: I64
    rows: I64
    values: I64 | None

    def only(self, first: int, stop: int) -> Block:
        """The records of ranges `first` to `stop`; the other ranges have none."""
        rows = np.zeros_like(self.rows)
        rows[first:stop] = self.rows[first:stop]
        values = self.values
        if values is not None:
            values = values[self.rows[:first].sum() : self.rows[:stop].sum()]
        return Block(self.data, self.bounds, rows, values)


class Splitters:
    """The borders between ranges: range r holds the keywords from splitter r - 1 up to splitter r.

    They are code strings of any length, so that a hot token, or a long prefix that most
    keywords share, is still divided. Where they lie has no effect on the artifact.
    """

    def __init__(self, strings: Sequence[bytes]) -> None:
        """`strings` are distinct code strings in rising order; there is one range more."""
        self.ranges = len(strings) + 1
        self.data = np.frombuffer(b"".join(strings) or b"\0", np.uint8).copy()
        sizes = np.array([len(s) for s in strings], np.int64)
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        padded = [int.from_bytes(s[:8].ljust(8, b"\0"), "big") for s in strings]
        self.prefixes = np.array(padded, np.uint64)
        top = (self.prefixes >> np.uint64(48)).astype(np.int64)
        self.table = np.searchsorted(top, np.arange(_TOP + 1)).astype(np.int32)

    @classmethod
    def even(cls, sample: Encoded, ranges: int) -> Splitters:
        """Splitters that divide the rows of `sample` evenly into at most `ranges`."""
        strings = sample.strings()
        strings.sort()
        picks = (
            {strings[len(strings) * r // ranges] for r in range(1, ranges)} if strings else set()
        )
        return cls(sorted(picks))


@dataclass(frozen=True)
class Encoded:
    """Records in row order: data uint8, starts int64 [rows + 1], prefixes uint64 [rows]."""

    data: U8
    starts: I64
    prefixes: U64

    def strings(self) -> list[bytes]:
        """The code string of each row."""
        spans = (codes.record(self.data, at) for at in self.starts[:-1])
        return [self.data[begin : begin + size].tobytes() for begin, size in spans]


def encode_rows(entries: U32, offsets: I64, code_of: U64, *, reverse: bool = False) -> Encoded:
    """Encode rows of `entries` uint32 [n] into `code_of`. See codes.encode."""
    rows = len(offsets) - 1
    out = np.empty(
        codes.MAX_CODE_BYTES * len(entries) + codes.MAX_RECORD_HEADER * rows + 8, np.uint8
    )
    starts = np.empty(rows + 1, np.int64)
    prefixes = np.empty(rows, np.uint64)
    used = codes.encode(entries, offsets, code_of, reverse, out, starts, prefixes)
    return Encoded(out[: int(used)], starts, prefixes)


def scatter(encoded: Encoded, values: I64 | None, splitters: Splitters) -> Block:
    """Group encoded rows, with their values if any, by range. About 20 ns a row."""
    data, starts, prefixes = encoded.data, encoded.starts, encoded.prefixes
    row_range = np.empty(len(prefixes), np.uint16)
    bounds = np.zeros(splitters.ranges + 1, np.int64)
    rows = np.zeros(splitters.ranges, np.int64)
    s = splitters
    _assign(data, starts, prefixes, s.data, s.offsets, s.prefixes, s.table, row_range, bounds, rows)
    np.cumsum(bounds, out=bounds)
    grouped = np.empty(len(data), np.uint8)
    order = np.empty(len(prefixes) if values is not None else 0, np.int64)
    _move(data, starts, row_range, bounds[:-1].copy(), rows, grouped, order)
    return Block(grouped, bounds, rows, None if values is None else values[order])


def join_range(blocks: Sequence[Block], r: int) -> tuple[U8, I64]:
    """(records, values) of range r in all blocks; no values give an empty array."""
    data = [block.data[block.bounds[r] : block.bounds[r + 1]] for block in blocks]
    values = [
        block.values[(end := int(block.rows[: r + 1].sum())) - int(block.rows[r]) : end]
        for block in blocks
        if block.values is not None
    ]
    return np.concatenate(data), np.concatenate(values) if values else np.empty(0, np.int64)


@jit
def _assign(
    data: U8,
    starts: I64,
    prefixes: U64,
    split_data: U8,
    split_offsets: I64,
    split_prefixes: U64,
    table: npt.NDArray[np.int32],
    row_range: npt.NDArray[np.uint16],
    bounds: I64,
    rows: I64,
) -> None:
    """The range of each row, the bytes of range r in bounds[r + 1], its rows in rows[r]."""
    for row in range(len(prefixes)):
        prefix = prefixes[row]
        top = np.int64(prefix >> np.uint64(48))
        low, high = np.int64(table[top]), np.int64(table[top + 1])
        while low < high:
            mid = (low + high) >> 1
            if split_prefixes[mid] < prefix:
                low = mid + 1
            else:
                high = mid
        if low < len(split_prefixes) and split_prefixes[low] == prefix:
            begin, size = codes.record(data, starts[row])
            while (
                low < len(split_prefixes)
                and split_prefixes[low] == prefix
                and codes.compare(
                    split_data,
                    split_offsets[low],
                    split_offsets[low + 1] - split_offsets[low],
                    data,
                    begin,
                    size,
                )
                <= 0
            ):
                low += 1
        row_range[row] = low
        bounds[low + 1] += starts[row + 1] - starts[row]
        rows[low] += 1


@jit
def _move(
    data: U8,
    starts: I64,
    row_range: npt.NDArray[np.uint16],
    at: I64,
    rows: I64,
    grouped: U8,
    order: I64,
) -> None:
    """Copy each record to its range; `order` receives the rows in the new order if it has room."""
    if len(order):
        row_at = np.zeros(len(rows), np.int64)
        for r in range(1, len(rows)):
            row_at[r] = row_at[r - 1] + rows[r - 1]
        for row in range(len(row_range)):
            r = row_range[row]
            order[row_at[r]] = row
            row_at[r] += 1
    one = np.uint64(1)
    for row in range(len(row_range)):
        r = row_range[row]
        p = np.uint64(at[r])
        for k in range(np.uint64(starts[row]), np.uint64(starts[row + 1])):
            grouped[p] = data[k]
            p += one
        at[r] = p
