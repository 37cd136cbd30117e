"""One range in order: radix sort on the first 8 code bytes, ties by the next 8, duplicates out.

Sorting touches 12 bytes a row, whatever the keywords' length: a 64-bit prefix and a row number.
Ranges are made small enough for a core's cache, where a pass over one byte costs about 2 ns a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes
from flashtrie.formats.jit import Int, jit

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# Records, their number, and values or None.
Part = tuple[U8, int, I64 | None]

# Below this many rows a bucket is sorted by insertion.
_INSERTION = 32
# A radix pass splits a bucket in up to 256; they wait on a stack, 8 levels deep.
_STACK = 8 * 256 + 8


@dataclass(frozen=True)
class SortedRange:
    """The distinct keywords of a range in order.

    data uint8: records; begins int64 [n] and lengths int32 [n] say where the code string of keyword
    i stands. values int64 [n] or None, and then weights int64 [n]: how many rows had that value.
    rows, conflicts: rows read, and rows whose value lost against a smaller one; conflict: the ranks
    of a keyword with such a row, or None.
    """

    data: U8
    begins: I64
    lengths: I32
    values: I64 | None
    weights: I64 | None
    rows: int
    conflicts: int
    conflict: U32 | None

    def __len__(self) -> int:
        """The number of keywords."""
        return len(self.begins)

    def ranks(self, i: int) -> U32:
        """The rank sequence of keyword i."""
        out = np.empty(int(self.lengths[i]), np.uint32)
        return out[: codes.decode(self.data, self.begins[i], np.int64(self.lengths[i]), out)]


def sort_parts(parts: Iterable[Part]) -> SortedRange:
    """Sort a range that comes in parts.

    Where there are several, each is reduced to its distinct keywords, and then those are sorted.
    """
    keys: list[SortedRange] = []
    for part in parts:
        if keys:
            keys[-1] = _packed(keys[-1])
        keys.append(sort_range(*part))
    if len(keys) == 1:
        return keys[0]
    keys[-1] = _packed(keys[-1])
    values = [part.values for part in keys if part.values is not None]
    weights = [part.weights for part in keys if part.weights is not None]
    joined = sort_range(
        np.concatenate([part.data for part in keys]),
        sum(len(part) for part in keys),
        np.concatenate(values) if values else None,
        np.concatenate(weights) if weights else None,
    )
    return replace(
        joined,
        rows=sum(part.rows for part in keys),
        conflicts=joined.conflicts + sum(part.conflicts for part in keys),
        conflict=next(
            (part.conflict for part in (*keys, joined) if part.conflict is not None), None
        ),
    )


def sort_range(data: U8, rows: int, values: I64 | None, weights: I64 | None = None) -> SortedRange:
    """Sort `rows` records and drop duplicates, the smallest value staying.

    About 50 ns a row, and 40 bytes a row beside the records. A record stands for weights int64
    [rows] rows, for one where that is left out.
    """
    records = sort_records(data, rows)
    kept = np.empty(rows, np.uint32)
    row_values = values if values is not None else np.empty(0, np.int64)
    row_weights = weights if weights is not None else np.empty(0, np.int64)
    kept_values, kept_weights = (np.empty(len(row_values), np.int64) for _ in range(2))
    n, conflicts, conflict = _distinct(
        records.same, records.order, row_values, row_weights, kept, kept_values, kept_weights
    )
    kept = kept[:n]
    keys = SortedRange(
        data,
        records.begins[kept],
        records.lengths[kept],
        None if values is None else kept_values[:n].copy(),
        None if values is None else kept_weights[:n].copy(),
        rows,
        conflicts,
        None,
    )
    return keys if conflict < 0 else replace(keys, conflict=keys.ranks(conflict))


def _packed(keys: SortedRange) -> SortedRange:
    """The same with no more data than its keywords."""
    data, begins = pack_records(keys.data, keys.begins, keys.lengths)
    return replace(keys, data=data, begins=begins)


def pack_records(data: U8, begins: I64, lengths: I32) -> tuple[U8, I64]:
    """Records of the given code strings alone, and where these begin in them."""
    ends = np.cumsum(lengths + codes.header_bytes(lengths), dtype=np.int64)
    out = np.empty(int(ends[-1]), np.uint8)
    codes.copy_records(data, begins, lengths, out)
    return out, ends - lengths


@dataclass(frozen=True)
class SortedRecords:
    """All records of a range in order.

    begins int64 [rows] and lengths int32 [rows]: where each record's code string stands; order
    uint32 [rows]: the records in order; same bool [rows]: the i-th in order equals the one before
    it.
    """

    begins: I64
    lengths: I32
    order: U32
    same: Bool


def sort_records(data: U8, rows: int) -> SortedRecords:
    """Sort `rows` records, duplicates included."""
    begins = np.empty(rows, np.int64)
    lengths = np.empty(rows, np.int32)
    keys = np.empty(rows, np.uint64)
    order = np.empty(rows, np.uint32)
    _parse(data, begins, lengths, keys, order)
    spare_keys, spare_order = np.empty(rows, np.uint64), np.empty(rows, np.uint32)
    _radix_sort(keys, order, spare_keys, spare_order, 0, rows)
    _refine(data, begins, lengths, keys, order, spare_keys, spare_order)
    same = np.empty(rows, np.bool_)
    _mark_same(data, begins, lengths, keys, order, same)
    return SortedRecords(begins, lengths, order, same)


@jit
def _parse(data: U8, begins: I64, lengths: I32, keys: U64, order: U32) -> None:
    at = 0
    for row in range(len(begins)):
        begin, size = codes.record(data, at)
        begins[row], lengths[row], order[row] = begin, size, row
        keys[row] = _key_at(data, begin, size, 0)
        at = begin + size


@jit
def _key_at(data: U8, begin: Int, size: Int, depth: Int) -> Int:
    """The 8 code bytes from `depth` on as one integer, zeros behind the end."""
    x = np.int64(0)
    for k in range(depth, depth + 8):
        x = (x << 8) | (np.int64(data[begin + k]) if k < size else np.int64(0))
    return np.uint64(x)


@jit
def _radix_sort(
    keys: U64, order: U32, spare_keys: U64, spare_order: U32, begin: Int, end: Int
) -> None:
    """Sort keys[begin:end] and order with them; from the most significant byte down."""
    lows = np.empty(_STACK, np.int64)
    highs = np.empty(_STACK, np.int64)
    shifts = np.empty(_STACK, np.int64)
    at = np.empty(257, np.int64)
    lows[0], highs[0], shifts[0] = begin, end, 56
    depth = 1
    while depth:
        depth -= 1
        low, high, shift = lows[depth], highs[depth], shifts[depth]
        if high - low <= _INSERTION:
            for i in range(low + 1, high):
                key, row = keys[i], order[i]
                j = i
                while j > low and keys[j - 1] > key:
                    keys[j], order[j] = keys[j - 1], order[j - 1]
                    j -= 1
                keys[j], order[j] = key, row
            continue
        at[:] = 0
        for i in range(low, high):
            at[np.int64((keys[i] >> np.uint64(shift)) & np.uint64(255)) + 1] += 1
        same = False
        for b in range(256):
            if at[b + 1] == high - low:
                same = True
            at[b + 1] += at[b]
        if same:
            if shift:
                lows[depth], highs[depth], shifts[depth] = low, high, shift - 8
                depth += 1
            continue
        if shift:
            for b in range(256):
                if at[b + 1] - at[b] > 1:
                    lows[depth], highs[depth] = low + at[b], low + at[b + 1]
                    shifts[depth] = shift - 8
                    depth += 1
        for i in range(low, high):
            byte = np.int64((keys[i] >> np.uint64(shift)) & np.uint64(255))
            p = low + at[byte]
            at[byte] += 1
            spare_keys[p], spare_order[p] = keys[i], order[i]
        for i in range(low, high):
            keys[i], order[i] = spare_keys[i], spare_order[i]


@jit
def _refine(
    data: U8,
    begins: I64,
    lengths: I32,
    keys: U64,
    order: U32,
    spare_keys: U64,
    spare_order: U32,
) -> None:
    """Put rows with equal keys in the order of their whole code strings."""
    # Runs that are being refined: at most one waits for each row and depth, in depth order.
    zero: Int = np.int64(0)
    stack = [(zero, zero, zero)]
    stack.pop()
    i = 0
    while i < len(keys):
        j = i + 1
        while j < len(keys) and keys[j] == keys[i]:
            j += 1
        if j - i > 1 and _longer(lengths, order, i, j, 8):
            key = keys[i]
            stack.append((i, j, zero + 8))
            while len(stack):
                low, high, depth = stack.pop()
                if high - low <= _INSERTION:
                    _insert(data, begins, lengths, order, low, high, depth)
                    continue
                for k in range(low, high):
                    row = order[k]
                    keys[k] = _key_at(data, begins[row], np.int64(lengths[row]), depth)
                _radix_sort(keys, order, spare_keys, spare_order, low, high)
                a = low
                while a < high:
                    b = a + 1
                    while b < high and keys[b] == keys[a]:
                        b += 1
                    if b - a > 1 and _longer(lengths, order, a, b, depth + 8):
                        stack.append((a, b, depth + 8))
                    a = b
            keys[i:j] = key
        i = j


@jit
def _longer(lengths: I32, order: U32, low: Int, high: Int, depth: Int) -> bool:
    for k in range(low, high):
        if lengths[order[k]] > depth:
            return True
    return False


@jit
def _insert(
    data: U8, begins: I64, lengths: I32, order: U32, low: Int, high: Int, depth: Int
) -> None:
    """Insertion sort by the code bytes from `depth` on."""
    for i in range(low + 1, high):
        row = order[i]
        begin, size = begins[row] + depth, np.int64(lengths[row]) - depth
        j = i
        while j > low:
            before = order[j - 1]
            other, other_size = begins[before] + depth, np.int64(lengths[before]) - depth
            if codes.compare(data, other, other_size, data, begin, size) <= 0:
                break
            order[j] = before
            j -= 1
        order[j] = row


@jit
def _mark_same(data: U8, begins: I64, lengths: I32, keys: U64, order: U32, same: Bool) -> None:
    """Which records equal the one before them. Only equal keys have their code strings read."""
    for i in range(len(order)):
        equal = i > 0 and keys[i] == keys[i - 1]
        if equal:
            a, b = order[i - 1], order[i]
            equal = lengths[a] == lengths[b]
            k = np.int64(8)
            while equal and k < np.int64(lengths[a]):
                equal = data[begins[a] + k] == data[begins[b] + k]
                k += 1
        same[i] = equal


@jit
def _distinct(
    same: Bool,
    order: U32,
    values: I64,
    weights: I64,
    kept: U32,
    kept_values: I64,
    kept_weights: I64,
) -> tuple[Int, Int, Int]:
    """(distinct keywords, rows whose value lost, a keyword with such a row or -1)."""
    n = 0
    conflicts = np.int64(0)
    conflict = -1
    for i in range(len(order)):
        row = order[i]
        first = not same[i]
        if first:
            kept[n] = row
            n += 1
        if len(values):
            value = values[row]
            weight = weights[row] if len(weights) else np.int64(1)
            k = n - 1
            if first:
                kept_values[k], kept_weights[k] = value, weight
            elif value == kept_values[k]:
                kept_weights[k] += weight
            else:
                conflict = k
                if value < kept_values[k]:
                    # Those before lose; what had lost already was counted.
                    conflicts += kept_weights[k]
                    kept_values[k], kept_weights[k] = value, weight
                else:
                    conflicts += weight
    return n, conflicts, conflict
