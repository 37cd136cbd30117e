"""From a node to its children, label, parent, key id and tail; docs/format.md as compiled code.

A level is named by its row in the level table, from 0: `row` r holds the nodes at depth r + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashtrie.cpu import view as v
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import popcount, prefetch, trailing_zeros, u32
from flashtrie.cpu.succinct import (
    bit,
    bits_from,
    coded,
    find_packed,
    packed,
    prefetch_rank,
    rank,
    select,
    select_between,
)
from flashtrie.cpu.view import View, level, scalar
from flashtrie.formats.jit import Int
from flashtrie.formats.schema import BLOCK_BITS, SELECT_ONES

_NEAR_BITS = 57  # of a bitmap, that one load on any byte has at least
_NEAR = np.uint64((1 << _NEAR_BITS) - 1)


@inner
def root_child(view: View, label: Int) -> Int:
    """Node of level 1 with this label (0 <= label < alphabet size), -1 where there is none."""
    file, root = view.file, scalar(view, v.ROOT)
    if not bit(file, root, label):
        return -1
    node = rank(file, root, scalar(view, v.ROOT_RANK), False, label)
    return min(node, level(view, 0, v.NODES) - 1)


@inner
def prefetch_root_child(view: View, label: Int) -> None:
    """Ask for what `root_child` will read."""
    prefetch_rank(view.file, scalar(view, v.ROOT), scalar(view, v.ROOT_RANK), label)


@inner
def is_inner(view: View, row: Int, node: Int) -> Any:
    """Whether the node has children. On the last level none has, whatever its bits say."""
    return level(view, row, v.INNER) > 0 and bit(view.file, level(view, row, v.INNER_BITS), node)


@inner
def inners_before(view: View, row: Int, node: Int) -> Int:
    """Inner nodes before `node`: its index among them if it is one itself."""
    at, directory = level(view, row, v.INNER_BITS), level(view, row, v.INNER_RANK)
    before = rank(view.file, at, directory, False, node)
    return min(before, min(node, level(view, row, v.INNER)))


@inner
def prefetch_node(view: View, row: Int, node: Int) -> None:
    """Ask for what `is_inner` and `inners_before` will read."""
    at, directory = level(view, row, v.INNER_BITS), level(view, row, v.INNER_RANK)
    prefetch_rank(view.file, at, directory, node)


@inner
def prefetch_entry(view: View, row: Int, inner: Int) -> None:
    """Ask for the first thing that `children` will read."""
    prefetch(view.file, level(view, row, v.LOUDS_SELECT) + inner // SELECT_ONES, 4)


@inner
def prefetch_children(view: View, row: Int, inner: Int) -> None:
    """Ask for the rest, now that the entry is there.

    The children of 512 inner nodes take the blocks between two entries: where in them the wanted
    ones are is guessed as if all had as many.
    """
    entry = level(view, row, v.LOUDS_SELECT) + inner // SELECT_ONES
    low: Int = u32(view.file, entry)
    high: Int = u32(view.file, entry + 1)
    block = low + inner % SELECT_ONES * (high - low) // SELECT_ONES
    at, directory = level(view, row, v.LOUDS), level(view, row, v.LOUDS_RANK)
    prefetch_rank(view.file, at, directory, block * BLOCK_BITS)


@inner
def prefetch_labels(view: View, row: Int, node: Int) -> None:
    """Ask for the label of a node, without its high part, and for what `prefetch_node` does."""
    prefetch_coded(view, row, v.LABEL_LOW, v.LABEL_LOW_BITS, node)
    prefetch_node(view, row, node)


@inner
def children(view: View, row: Int, inner: Int) -> tuple[Int, Int]:
    """First child of inner node number `inner`, and the node behind its last child.

    One select and a look at the next bits; a second select where there are many children.
    """
    file = view.file
    inners, nodes = level(view, row, v.INNER), level(view, row + 1, v.NODES)
    at, directory = level(view, row, v.LOUDS), level(view, row, v.LOUDS_RANK)
    entries = level(view, row, v.LOUDS_SELECT)
    inner = min(inner, inners - 1)
    start = select(file, at, directory, False, entries, nodes, inner)
    if inner == inners - 1:
        return start, nodes
    near = bits_from(file, at, start + 1) & _NEAR
    if near != np.uint64(0):
        return start, min(start + 1 + trailing_zeros(near), nodes)
    stop = select(file, at, directory, False, entries, nodes, inner + 1)
    return start, max(stop, start)


@inner
def parent_inner(view: View, row: Int, node: Int) -> Int:
    """The inner node of level `row - 1`, by its index, that is a node's parent. One rank."""
    at, directory = level(view, row - 1, v.LOUDS), level(view, row - 1, v.LOUDS_RANK)
    inner = rank(view.file, at, directory, False, node + 1) - 1
    return min(max(inner, 0), level(view, row - 1, v.INNER) - 1)


@inner
def label(view: View, row: Int, node: Int) -> Int:
    """Label of a node, clamped to the alphabet. Level 1 takes a search in the rank directory."""
    file = view.file
    size = scalar(view, v.ALPHABET_SIZE)
    if row == 0:
        at, directory = scalar(view, v.ROOT), scalar(view, v.ROOT_RANK)
        last = (size - 1) // BLOCK_BITS
        return select_between(file, at, directory, False, 0, last, size, node)
    value = coded_of_level(view, row, v.LABEL_LOW, v.LABEL_LOW_BITS, node)
    return min(max(value, 0), size - 1)


@inner
def coded_of_level(view: View, row: Int, array: Int, coding: Int, i: Int) -> Int:
    """Element `i` of a coded array, given the columns of its first section and of `low_bits`."""
    return coded(
        view.file,
        level(view, row, array),
        level(view, row, array + 1),
        level(view, row, array + 2),
        level(view, row, array + 3),
        False,
        level(view, row, coding),
        level(view, row, coding + 1),
        level(view, row, coding + 2),
        i,
    )


@inner
def prefetch_coded(view: View, row: Int, array: Int, coding: Int, i: Int) -> None:
    """Ask for what `coded_of_level` will read, but for a high part."""
    low_bit = i * level(view, row, coding)
    prefetch(view.file, level(view, row, array) + (low_bit >> 6), 8)
    prefetch(view.file, level(view, row, array + 1) + (i >> 6), 8)


@inner
def first_high(view: View, row: Int, start: Int, stop: Int) -> Int:
    """The first of siblings `start` to `stop` with a high part, `stop` where none has one.

    Siblings rise, so those from there on have one and those before have none: no flag needs to
    be looked at again.
    """
    highs = level(view, row, v.LABEL_HIGHS)
    if highs == 0:
        return stop
    at = level(view, row, v.LABEL_FLAG)
    count = stop - start
    if count <= _NEAR_BITS:
        mask = (np.uint64(1) << np.uint64(count)) - np.uint64(1)
        flagged = popcount(bits_from(view.file, at, start) & mask)
    else:
        directory = level(view, row, v.LABEL_FLAG_RANK)
        flagged = rank(view.file, at, directory, False, stop)
        flagged -= rank(view.file, at, directory, False, start)
    return stop - min(max(flagged, 0), min(count, highs))


@inner
def high_part(view: View, row: Int, boundary: Int, stop: Int) -> Int:
    """Index of the high part of node `boundary`; those of its siblings up to `stop` follow."""
    at, directory = level(view, row, v.LABEL_FLAG), level(view, row, v.LABEL_FLAG_RANK)
    before = rank(view.file, at, directory, False, boundary)
    return min(before, level(view, row, v.LABEL_HIGHS) - (stop - boundary))


@inner
def find_child(view: View, row: Int, start: Int, stop: Int, label: Int) -> Int:
    """The node with this label among siblings `start` to `stop`, -1 where there is none.

    Logarithmic, with no rank for any probe, and one only for a label with a high part.
    """
    boundary = first_high(view, row, start, stop)
    low_bits = level(view, row, v.LABEL_LOW_BITS)
    if label >> low_bits == 0:
        at = level(view, row, v.LABEL_LOW)
        return find_packed(view.file, at, low_bits, start, boundary, label)
    if boundary == stop:
        return -1
    return find_high_child(view, row, boundary, stop, high_part(view, row, boundary, stop), label)


@inner
def find_high_child(view: View, row: Int, boundary: Int, stop: Int, high: Int, label: Int) -> Int:
    """The node with this label among siblings that have a high part, the first at index `high`."""
    if boundary >= stop:
        return -1
    base = boundary
    n = stop - boundary
    high -= boundary
    while n > 1:
        half = n >> 1
        # As in `find_packed`.
        base += half & ~((label - label_in_two(view, row, base + half, high + base + half)) >> 63)
        n -= half
    return base if label_in_two(view, row, base, high + base) == label else -1


@inner
def label_in_two(view: View, row: Int, node: Int, high: Int) -> Int:
    """The label of a node whose high part is the one at index `high`. Not clamped."""
    part = packed(
        view.file, level(view, row, v.LABEL_HIGH), level(view, row, v.LABEL_HIGH_BITS), high
    )
    low_bits = level(view, row, v.LABEL_LOW_BITS)
    return part << low_bits | packed(view.file, level(view, row, v.LABEL_LOW), low_bits, node)


@inner
def is_terminal(view: View, row: Int, inner: Int) -> Any:
    """Whether a keyword ends at inner node number `inner`."""
    return bit(view.file, level(view, row, v.TERMINAL), min(inner, level(view, row, v.INNER) - 1))


@inner
def keys_before(view: View, row: Int, node: Int, inners: Int) -> Int:
    """Keywords of a level before `node`, which has `inners` inner nodes before it."""
    terminals = 0
    if level(view, row, v.INNER) > 0:
        at, directory = level(view, row, v.TERMINAL), level(view, row, v.TERMINAL_RANK)
        terminals = rank(view.file, at, directory, False, inners)
    return node - inners + terminals


@inner
def key_id(view: View, row: Int, node: Int, inners: Int) -> Int:
    """Key id of a leaf or terminal inner node with `inners` inner nodes before it."""
    key = level(view, row, v.FIRST_KEY) + keys_before(view, row, node, inners)
    return min(max(key, 0), scalar(view, v.KEYWORDS) - 1)


@inner
def prefetch_ends(view: View, row: Int, node: Int) -> None:
    """Ask for what says whether keywords end at nodes from `node` on."""
    before = inners_before(view, row, node)
    prefetch(view.file, level(view, row, v.TERMINAL) + (before >> 6), 8)
    prefetch(view.file, level(view, row, v.TAIL) + ((node - before) >> 6), 8)
