"""Verify, second part: bitmaps have the ones that are stated, and directories are what they imply.

A bitmap is checked in pieces that know nothing of each other: a piece takes the rank before it
from the directory, and proves the entry behind it. Entry 0 is proved to be 0, so all are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from flashtrie.formats import bits
from flashtrie.formats.payload import (
    Bitmap,
    Coded,
    Payload,
    coded_arrays,
    level_bitmaps,
    root,
    store_end,
)
from flashtrie.formats.schema import BLOCK_BITS, SECTION, SELECT_ONES, rank_entries, select_entries

Report = Callable[[str, str], None]  # name of the check, what is wrong and where

# Bits of a piece, a multiple of BLOCK_BITS.
PIECE = 1 << 20


def bitmaps(payload: Payload) -> Iterator[Bitmap]:
    """All bitmaps that have bits, in the order of their checks."""
    artifact = payload.artifact
    yield root(artifact)
    for d in range(1, artifact.header.levels + 1):
        yield from (bitmap for bitmap in level_bitmaps(artifact, d).values() if bitmap.size)
    yield from (coded.flag for coded in coded_arrays(artifact) if coded.flag.size)
    if artifact.header.store_tokens:
        yield store_end(artifact)


def check_piece(payload: Payload, bitmap: Bitmap, start: int, report: Report) -> int:
    """Check the piece of a bitmap that begins at bit `start`; its ones."""
    stop = min(start + PIECE, bitmap.size)
    where = f"{bitmap.where}, {bitmap.name}"
    words = payload.words(bitmap, start, stop)
    if stop % 64 and int(words[-1]) >> (stop % 64):
        report("bitmaps", f"{where}: bits behind the last of {bitmap.size:,} are not zero")
    if bitmap.name == "louds" and start == 0 and not int(words[0]) & 1:
        report("bitmaps", f"{where}: the first node is not a first child")
    if bitmap.name == "store_end" and stop == bitmap.size:
        if not int(words[-1]) >> ((stop - 1) % 64) & 1:
            report("bitmaps", f"{where}: the last token ends no tail")
    ones = bits.block_ones(words)
    if bitmap.rank is not None:
        _check_directories(payload, bitmap, start, ones, report)
    return int(ones.sum())


def _check_directories(
    payload: Payload, bitmap: Bitmap, start: int, ones: np.ndarray, report: Report
) -> None:
    assert bitmap.rank is not None
    where = f"{bitmap.where}, {bitmap.name}_rank"
    count = rank_entries(bitmap.size)
    first = start // BLOCK_BITS
    last = min(first + len(ones) + 1, count)
    stored = payload.read(f"{bitmap.name}_rank", bitmap.rank + first, bitmap.rank + last)
    stored = stored.astype(np.int64)
    before = int(stored[0]) if start else 0
    expected = before + np.concatenate([[0], np.cumsum(ones)])
    for block in np.flatnonzero(stored != expected[: len(stored)])[:1].tolist():
        cause = f"entry {first + block:,} is {stored[block]:,} where {expected[block]:,} is right"
        report("directories", f"{where}: {cause}")
        return
    if start == 0:
        _check_odd(payload, f"{bitmap.name}_rank", bitmap.rank, count, bitmap.where, report)
    if bitmap.select is not None:
        _check_select(payload, bitmap, start, expected, report)


def _check_select(
    payload: Payload, bitmap: Bitmap, start: int, ranks: np.ndarray, report: Report
) -> None:
    """`ranks` are the proved ones before each block of the piece, and behind its last."""
    assert bitmap.select is not None
    name, where = f"{bitmap.name}_select", f"{bitmap.where}, {bitmap.name}_select"
    count = select_entries(bitmap.ones)
    first = -(-int(ranks[0]) // SELECT_ONES)
    last = min(-(-int(ranks[-1]) // SELECT_ONES), count - 1)
    sought = np.arange(first, max(first, last), dtype=np.int64) * SELECT_ONES
    expected = start // BLOCK_BITS + np.searchsorted(ranks, sought, side="right") - 1
    if start + PIECE >= bitmap.size:
        last = count
        expected = np.append(expected, (bitmap.size - 1) // BLOCK_BITS)
        first = count - len(expected)
    stored = payload.read(name, bitmap.select + first, bitmap.select + first + len(expected))
    for i in np.flatnonzero(stored != expected)[:1].tolist():
        cause = f"entry {first + i:,} is {stored[i]:,} where {expected[i]:,} is right"
        report("directories", f"{where}: {cause}")
    if start == 0:
        _check_odd(payload, name, bitmap.select, count, bitmap.where, report)


def _check_odd(
    payload: Payload, name: str, first: int, count: int, where: str, report: Report
) -> None:
    """The entry behind an odd number of a level's 32-bit entries is zero."""
    filled = SECTION[name].per_level and count % 2
    if filled and payload.read(name, first + count, first + count + 1)[0]:
        report("directories", f"{where}, {name}: the entry that fills the last word is not zero")


def check_ones(bitmap: Bitmap, ones: int, report: Report) -> None:
    """Compare the ones of all pieces with those that header or level table state."""
    if ones != bitmap.ones:
        cause = f"{ones:,} ones where {bitmap.ones:,} are stated"
        report("bitmaps", f"{bitmap.where}, {bitmap.name}: {cause}")


def check_unused_bits(payload: Payload, coded: Coded, report: Report) -> None:
    """Bits behind the last element of a coded array's packed parts are zero."""
    for part, first, count, width in (
        ("low", coded.low, coded.size, coded.coding.low_bits),
        ("high", coded.high, coded.coding.highs, coded.coding.high_bits),
    ):
        name = f"{coded.prefix}_{part}"
        if unused_bits(payload, name, first, count * width):
            report("codings", f"{coded.where}, {name}: bits behind the last element are not zero")


def unused_bits(payload: Payload, name: str, first: int, size: int) -> int:
    """What the last word of `size` bits from element `first` on has behind them."""
    if size % 64 == 0:
        return 0
    word = first + size // 64
    return int(payload.read(name, word, word + 1)[0]) >> (size % 64)
