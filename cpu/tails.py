"""From a leaf to its tail; docs/format.md as compiled code. Levels are named as in nodes.py."""

from __future__ import annotations

from typing import Any

from flashtrie.cpu import view as v
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import prefetch
from flashtrie.cpu.nodes import coded_of_level, prefetch_coded
from flashtrie.cpu.succinct import bit, coded, prefetch_rank, rank, select
from flashtrie.cpu.view import View, level, scalar
from flashtrie.formats.jit import Int
from flashtrie.formats.schema import SELECT_ONES

# What `tail_start` gives for a leaf without a tail. A tail of one token is -2 - rank, and any
# other its position in the tail store.
NO_TAIL = -1


@inner
def has_tail(view: View, row: Int, leaf: Int) -> Any:
    """Whether leaf number `leaf` has a tail."""
    leaf = min(leaf, level(view, row, v.NODES) - level(view, row, v.INNER) - 1)
    return level(view, row, v.TAILS) > 0 and bit(view.file, level(view, row, v.TAIL), leaf)


@inner
def tail_number(view: View, row: Int, leaf: Int) -> Int:
    """The number of leaf `leaf`'s tail among the tails of its level, -1 where it has none."""
    if not has_tail(view, row, leaf):
        return -1
    leaf = min(leaf, level(view, row, v.NODES) - level(view, row, v.INNER))
    before = rank(view.file, level(view, row, v.TAIL), level(view, row, v.TAIL_RANK), False, leaf)
    return min(before, level(view, row, v.TAILS) - 1)


@inner
def prefetch_leaf(view: View, row: Int, leaf: Int) -> None:
    """Ask for what `tail_number` will read."""
    prefetch_rank(view.file, level(view, row, v.TAIL), level(view, row, v.TAIL_RANK), leaf)


@inner
def prefetch_kind(view: View, row: Int, tail: Int) -> None:
    """Ask for what `tail_place` will read."""
    at, directory = level(view, row, v.TAIL_LONG), level(view, row, v.TAIL_LONG_RANK)
    prefetch_rank(view.file, at, directory, tail)


@inner
def tail_place(view: View, row: Int, tail: Int) -> Int:
    """Where it stands what tail number `tail` of a level is; NO_TAIL for -1.

    Twice its place among the tails of one token, or one more than twice its place among the long
    tails of the level.
    """
    if tail < 0:
        return NO_TAIL
    tails, longs = level(view, row, v.TAILS), level(view, row, v.LONG_TAILS)
    at, directory = level(view, row, v.TAIL_LONG), level(view, row, v.TAIL_LONG_RANK)
    long = rank(view.file, at, directory, False, tail)
    if bit(view.file, at, tail):
        return 2 * min(long, longs - 1) + 1 if longs > 0 else NO_TAIL
    return 2 * min(max(tail - long, 0), tails - longs - 1) if tails > longs else NO_TAIL


@inner
def prefetch_start(view: View, row: Int, place: Int) -> None:
    """Ask for what `tail_start` will read first."""
    i = place >> 1
    if place & 1 == 0:
        prefetch_coded(view, row, v.TAIL_TOKEN_LOW, v.TAIL_TOKEN_LOW_BITS, i)
    elif scalar(view, v.IMPLICIT) == 0:
        prefetch_coded(view, row, v.TAIL_INDEX_LOW, v.TAIL_INDEX_LOW_BITS, i)
    else:
        long = level(view, row, v.FIRST_LONG_TAIL) + i
        prefetch(view.file, scalar(view, v.STORE_END_SELECT) + long // SELECT_ONES, 4)


@inner
def tail_start(view: View, row: Int, place: Int) -> Int:
    """Where the tail begins that `tail_place` names: see NO_TAIL."""
    if place < 0:
        return NO_TAIL
    i = place >> 1
    if place & 1 == 0:
        value = coded_of_level(view, row, v.TAIL_TOKEN_LOW, v.TAIL_TOKEN_LOW_BITS, i)
        return -2 - min(max(value, 0), scalar(view, v.ALPHABET_SIZE) - 1)
    tokens = scalar(view, v.STORE_TOKENS)
    if scalar(view, v.IMPLICIT) == 0:
        position = coded_of_level(view, row, v.TAIL_INDEX_LOW, v.TAIL_INDEX_LOW_BITS, i)
        return min(max(position, 0), tokens - 1)
    before = level(view, row, v.FIRST_LONG_TAIL) + i
    if before == 0:
        return 0
    at, directory = scalar(view, v.STORE_END), scalar(view, v.STORE_END_RANK)
    entries = scalar(view, v.STORE_END_SELECT)
    end = select(view.file, at, directory, True, entries, tokens, before - 1)
    return min(end + 1, tokens - 1)


@inner
def prefetch_store(view: View, position: Int) -> None:
    """Ask for what `store_label` and `store_ends` will read, but for a high part."""
    file, low_bit = view.file, position * scalar(view, v.STORE_LOW_BITS)
    prefetch(file, scalar(view, v.STORE_LOW) + (low_bit >> 6), 8)
    prefetch(file, scalar(view, v.STORE_FLAG) + (position >> 6), 8)
    prefetch(file, scalar(view, v.STORE_END) + (position >> 6), 8)


@inner
def store_label(view: View, position: Int) -> Int:
    """Rank of the token at a position of the tail store, clamped to the alphabet."""
    value = coded(
        view.file,
        scalar(view, v.STORE_LOW),
        scalar(view, v.STORE_FLAG),
        scalar(view, v.STORE_FLAG_RANK),
        scalar(view, v.STORE_HIGH),
        True,
        scalar(view, v.STORE_LOW_BITS),
        scalar(view, v.STORE_HIGH_BITS),
        scalar(view, v.STORE_HIGHS),
        position,
    )
    return min(max(value, 0), scalar(view, v.ALPHABET_SIZE) - 1)


@inner
def store_ends(view: View, position: Int) -> Any:
    """Whether a tail ends at this position of the store. The store's last position ends one."""
    last = position >= scalar(view, v.STORE_TOKENS) - 1
    return last or bit(view.file, scalar(view, v.STORE_END), position)
