"""Beams: prefixes with their scores, and what can follow each.

A beam at a node with children has these as nodes `start` to `stop` of the next level. A beam in a
tail can go on with one token alone: `label` is its rank, with ENDS added where the keyword ends
with it, `start` its position in the store, and `stop` is -1 - its key id.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import i64, pointer_f32, pointer_i64
from flashtrie.cpu.memory import Array
from flashtrie.cpu.nodes import (
    children,
    inners_before,
    is_inner,
    key_id,
    prefetch_children,
    prefetch_ends,
    prefetch_entry,
    prefetch_labels,
    prefetch_node,
)
from flashtrie.cpu.order import Candidates, score_of
from flashtrie.cpu.tails import (
    NO_TAIL,
    prefetch_kind,
    prefetch_leaf,
    prefetch_start,
    prefetch_store,
    store_ends,
    store_label,
    tail_number,
    tail_place,
    tail_start,
)
from flashtrie.cpu.view import View
from flashtrie.formats.jit import Int

ENDS = 1 << 32  # above any rank

# In place of a candidate's node: it is in a tail. No level has a node with this number.
IN_TAIL = 2**32 - 1


class Beams(NamedTuple):
    """Up to B beams, best first."""

    score: Array  # float32
    start: Array  # int64
    stop: Array  # int64
    label: Array  # int64


def make_beams(beam_width: int) -> Beams:
    """Room for B beams."""
    start, stop, label = np.empty((3, beam_width), np.int64)
    return Beams(np.empty(beam_width, np.float32), start, stop, label)


@inner
def beams_at(table: Int) -> Beams:
    """Pointers to what a part of a memory.table_of names."""
    return Beams(
        pointer_f32(i64(table, 0)),
        pointer_i64(i64(table, 1)),
        pointer_i64(i64(table, 2)),
        pointer_i64(i64(table, 3)),
    )


@inner
def advance(
    view: View,
    row: Int,
    beams: Beams,
    candidates: Candidates,
    n: Int,
    result: Beams,
    origins: Array,
    first_origin: Int,
) -> None:
    """Make the beams of the next step from `n` sorted candidates of the level in `row`.

    `origins`, uint32, gets from `first_origin` on where each came from: beam * 2^16 + position of
    its proposal.
    """
    # A chain of loads for each beam: one loop a link, so that the beams wait side by side.
    for i in range(n):
        if candidates.node[i] != IN_TAIL:
            prefetch_node(view, row, np.int64(candidates.node[i]))
    for i in range(n):
        key = candidates.key[i]
        result.score[i] = score_of(key)
        origins[first_origin + i] = np.uint32(key & np.uint64(0xFFFFFFFF))
        node = np.int64(candidates.node[i])
        if node == IN_TAIL:
            parent = np.int64(key >> np.uint64(16)) & 0xFFFF
            start = beams.start[parent] + 1
            result.start[i], result.stop[i] = start, beams.stop[parent]
            prefetch_store(view, start)
            continue
        before = inners_before(view, row, node)
        # For now, an inner node by its index, and a leaf by the complement of its.
        if is_inner(view, row, node):
            result.start[i], result.stop[i] = before, 0
            prefetch_entry(view, row, before)
        else:
            result.start[i], result.stop[i] = -1 - (node - before), node
            prefetch_leaf(view, row, node - before)
    for i in range(n):
        if candidates.node[i] != IN_TAIL:
            start = result.start[i]
            if start >= 0:
                prefetch_children(view, row, start)
            else:
                leaf = -1 - start
                node = result.stop[i]
                result.stop[i] = -1 - key_id(view, row, node, node - leaf)
                tail = tail_number(view, row, leaf)
                result.start[i] = -1 - tail
                prefetch_kind(view, row, max(tail, 0))
    for i in range(n):
        if candidates.node[i] != IN_TAIL:
            start = result.start[i]
            if result.stop[i] == 0:
                result.start[i], result.stop[i] = children(view, row, start)
                prefetch_labels(view, row + 1, result.start[i])
            else:
                place = tail_place(view, row, -1 - start)
                result.start[i] = place
                prefetch_start(view, row, max(place, 0))
    for i in range(n):
        if candidates.node[i] != IN_TAIL:
            start = result.start[i]
            if result.stop[i] >= 0:
                prefetch_ends(view, row + 1, start)
            else:
                start = tail_start(view, row, start)
                result.start[i] = start
                prefetch_store(view, max(start, 0))
    for i in range(n):
        start = result.start[i]
        if result.stop[i] >= 0:
            continue
        if start >= 0:
            label = store_label(view, start)
            result.label[i] = label + ENDS if store_ends(view, start) else label
        else:
            # A tail of one token; only a wrong payload can have NO_TAIL here.
            result.label[i] = (-2 - start if start != NO_TAIL else 0) + ENDS
