"""From keywords to key ids, many at a time.

A lookup is a chain of dependent loads, three or four a level, and each misses the caches of a
large artifact. So the keywords of a group go down the trie side by side, one short loop over the
group per load: the loads of one loop do not depend on each other, and the processor waits for
them together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.cpu import view as v
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import i64, pointer_i64, u32
from flashtrie.cpu.nodes import (
    children,
    find_child,
    inners_before,
    is_inner,
    is_terminal,
    key_id,
    prefetch_children,
    prefetch_coded,
    prefetch_entry,
    prefetch_labels,
    prefetch_node,
    prefetch_root_child,
    root_child,
)
from flashtrie.cpu.ranks import ABSENT, Ranks, prefetch_rank_of, rank_of
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
from flashtrie.cpu.view import View, scalar
from flashtrie.formats.jit import Int, jit

_GROUP = 64
_COLUMNS = 9


def make_group() -> npt.NDArray[np.int64]:
    """What `find_keywords` keeps of the keywords that are on their way, for one thread."""
    return np.empty((_COLUMNS, _GROUP), np.int64)


@jit
def find_keywords(
    view: View,
    ranks: Ranks,
    tokens: Int,
    offsets: Int,
    first: Int,
    stop: Int,
    found: Int,
    group: Int,
) -> None:
    """Key ids of keywords `first` to `stop` into `found`, -1 where absent.

    Keyword i is tokens[offsets[i]:offsets[i + 1]]; a token of ABSENT is in no keyword. Addresses:
    tokens of uint32, offsets and found of int64, `group` what make_group made.
    """
    key_ids: Any = pointer_i64(found)
    column = group
    key: Any = pointer_i64(column)
    column += _GROUP * 8
    node: Any = pointer_i64(column)
    column += _GROUP * 8
    label: Any = pointer_i64(column)
    column += _GROUP * 8
    inner: Any = pointer_i64(column)
    # Keywords whose node is found: leaves, whose tails are still to be compared, from the left;
    # terminal inner nodes from the right.
    column += _GROUP * 8
    end_key: Any = pointer_i64(column)
    column += _GROUP * 8
    end_row: Any = pointer_i64(column)
    column += _GROUP * 8
    end_node: Any = pointer_i64(column)
    column += _GROUP * 8
    end_inner: Any = pointer_i64(column)
    column += _GROUP * 8
    tail: Any = pointer_i64(column)
    for base in range(first, stop, _GROUP):
        n = 0
        for i in range(base, min(base + _GROUP, stop)):
            key_ids[i] = -1
            begin, end = i64(offsets, i), i64(offsets, i + 1)
            if 0 < end - begin <= scalar(view, v.MAX_LENGTH):
                for j in range(begin, end):
                    prefetch_rank_of(ranks, u32(tokens, j))
                key[n] = i
                n += 1
        for a in range(n):
            label[a] = rank_of(ranks, u32(tokens, i64(offsets, key[a])))
            if label[a] != ABSENT:
                prefetch_root_child(view, label[a])
        live = 0
        for a in range(n):
            if label[a] != ABSENT:
                at = root_child(view, label[a])
                if at >= 0:
                    key[live], node[live] = key[a], at
                    live += 1
                    prefetch_node(view, 0, at)
        row = 0
        leaves, terminals = 0, _GROUP
        while live > 0:
            n, live = live, 0
            for a in range(n):
                i, at = key[a], node[a]
                before = inners_before(view, row, at)
                if not is_inner(view, row, at):
                    place = leaves
                    leaves += 1
                    prefetch_leaf(view, row, at - before)
                elif i64(offsets, i + 1) - i64(offsets, i) > row + 1:
                    key[live], inner[live] = i, before
                    live += 1
                    prefetch_entry(view, row, before)
                    continue
                elif is_terminal(view, row, before):
                    terminals -= 1
                    place = terminals
                else:
                    continue
                end_key[place], end_row[place] = i, row
                end_node[place], end_inner[place] = at, before
            n, live = live, 0
            for a in range(n):
                prefetch_children(view, row, inner[a])
            for a in range(n):
                node[a], inner[a] = children(view, row, inner[a])
                prefetch_labels(view, row + 1, node[a])
                middle = (node[a] + inner[a]) >> 1
                prefetch_coded(view, row + 1, v.LABEL_LOW, v.LABEL_LOW_BITS, middle)
            row += 1
            for a in range(n):
                rank = rank_of(ranks, u32(tokens, i64(offsets, key[a]) + row))
                at = find_child(view, row, node[a], inner[a], rank)
                if at >= 0:
                    key[live], node[live] = key[a], at
                    live += 1
        for a in range(leaves):
            tail[a] = tail_number(view, end_row[a], end_node[a] - end_inner[a])
            prefetch_kind(view, end_row[a], max(tail[a], 0))
        for a in range(leaves):
            tail[a] = tail_place(view, end_row[a], tail[a])
            prefetch_start(view, end_row[a], max(tail[a], 0))
        for a in range(leaves):
            tail[a] = tail_start(view, end_row[a], tail[a])
            prefetch_store(view, max(tail[a], 0))
        for a in range(leaves):
            begin, end = i64(offsets, end_key[a]) + end_row[a] + 1, i64(offsets, end_key[a] + 1)
            if not _tail_is(view, ranks, tail[a], tokens, begin, end):
                end_node[a] = -1
        for a in range(_GROUP):
            if (a < leaves or a >= terminals) and end_node[a] >= 0:
                key_ids[end_key[a]] = key_id(view, end_row[a], end_node[a], end_inner[a])


@inner
def _tail_is(view: View, ranks: Ranks, start: Int, tokens: Int, at: Int, stop: Int) -> Any:
    """Whether the tail that starts at `start` (see nodes.tail_start) is tokens[at:stop]."""
    if start == NO_TAIL or at == stop:
        return start == NO_TAIL and at == stop
    if start < NO_TAIL:
        return stop - at == 1 and rank_of(ranks, u32(tokens, at)) == -2 - start
    position = start
    while rank_of(ranks, u32(tokens, at)) == store_label(view, position):
        at += 1
        if store_ends(view, position):
            return at == stop
        if at == stop:
            return False
        position += 1
    return False
