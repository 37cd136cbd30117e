"""From key ids back to keywords: in key id order, which is the order of the nodes.

Nodes of a level that follow each other have parents that do so too. A cursor on each level above
moves forward from inner node to inner node, and only what changed of a path is decoded again: some
loads from places that were just read, where a walk up from each node alone would take a select a
level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashtrie.cpu import view as v
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import u32
from flashtrie.cpu.nodes import (
    inners_before,
    is_inner,
    is_terminal,
    keys_before,
    label,
    parent_inner,
)
from flashtrie.cpu.succinct import next_one, packed_wide, select_between
from flashtrie.cpu.tails import (
    NO_TAIL,
    store_ends,
    store_label,
    tail_number,
    tail_place,
    tail_start,
)
from flashtrie.cpu.view import View, level, scalar
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.schema import BLOCK_BITS

_FEW_STEPS = 8  # from inner node to inner node, that are faster than a search for the last


@jit
def decode_keywords(
    view: View,
    first: Int,
    stop: Int,
    tokens: npt.NDArray[np.uint32],
    offsets: npt.NDArray[np.int64],
) -> Int:
    """Keywords with key ids `first` to `stop`, flat into `tokens`; how many of them fitted.

    `offsets` [stop - first + 1] gets where each begins, and the end of the last. One keyword at
    least fits where `tokens` is as long as the longest.
    """
    depth = scalar(view, v.LEVELS)
    path = np.empty(depth, np.uint32)  # tokens from the root on
    node = np.empty(depth, np.int64)  # on each level above, the cursor
    inner_at = np.empty(depth, np.int64)  # its number among the inner nodes
    row = 0
    while row + 1 < depth and level(view, row + 1, v.FIRST_KEY) <= first:
        row += 1
    current = _find_node(view, row, first - level(view, row, v.FIRST_KEY))
    before = inners_before(view, row, current)
    for up in range(depth):
        node[up] = -1
    at = 0
    offsets[0] = 0
    for done in range(stop - first):
        while row + 1 < depth and level(view, row + 1, v.FIRST_KEY) <= first + done:
            row += 1
            current = before = 0
            node[row] = -1
        # On to the next node at which a keyword ends.
        while is_inner(view, row, current) and not is_terminal(view, row, before):
            if current == level(view, row, v.NODES) - 1:
                break  # a wrong payload has fewer
            current += 1
            before += 1
        _set_path(view, row, current, path, node, inner_at)
        start = NO_TAIL
        ends_in_leaf = not is_inner(view, row, current)
        if ends_in_leaf:
            tail = tail_number(view, row, current - before)
            start = tail_start(view, row, tail_place(view, row, tail))
        end = at + row + 1
        if end > len(tokens):
            return done
        for up in range(row + 1):
            tokens[at + up] = path[up]
        most = min(at + scalar(view, v.MAX_LENGTH), len(tokens))
        if start < NO_TAIL:
            if end == len(tokens):
                return done
            tokens[end] = _token(view, -2 - start)
            end += 1
        elif start > NO_TAIL:
            ended = False
            while not ended and end < most:
                tokens[end] = _token(view, store_label(view, start))
                ended = store_ends(view, start)
                start += 1
                end += 1
            if not ended and end == len(tokens):
                return done
        at = end
        offsets[done + 1] = at
        if current < level(view, row, v.NODES) - 1:
            current += 1
            before += 0 if ends_in_leaf else 1
    return stop - first


@jit
def decode_chosen(
    view: View,
    key_ids: npt.NDArray[np.int64],
    tokens: npt.NDArray[np.uint32],
    offsets: npt.NDArray[np.int64],
) -> Int:
    """The same as `decode_keywords` for any key ids, each from scratch: a select or two a token."""
    at = 0
    offsets[0] = 0
    ends = np.zeros(2, np.int64)
    for i in range(len(key_ids)):
        if decode_keywords(view, key_ids[i], key_ids[i] + 1, tokens[at:], ends) == 0:
            return i
        at += ends[1]
        offsets[i + 1] = at
    return len(key_ids)


@inner
def _token(view: View, rank_: Int) -> Int:
    return u32(view.file, scalar(view, v.ALPHABET) + rank_)


@inner
def _find_node(view: View, row: Int, key: Int) -> Int:
    """The node of the `key`-th keyword of a level: a search by blocks, then a step a node."""
    nodes = level(view, row, v.NODES)
    low, high = 0, (nodes - 1) // BLOCK_BITS
    while low < high:
        middle = (low + high + 1) >> 1
        node = middle * BLOCK_BITS
        if keys_before(view, row, node, inners_before(view, row, node)) <= key:
            low = middle
        else:
            high = middle - 1
    current = low * BLOCK_BITS
    before = inners_before(view, row, current)
    left = key - keys_before(view, row, current, before)
    while current < nodes - 1:
        if not is_inner(view, row, current):
            ends = True
        else:
            ends = is_terminal(view, row, before)
            before += 1
        if ends:
            if left == 0:
                break
            left -= 1
        current += 1
    return current


@inner
def _set_path(
    view: View,
    row: Int,
    current: Int,
    path: npt.NDArray[np.uint32],
    node: npt.NDArray[np.int64],
    inner_at: npt.NDArray[np.int64],
) -> None:
    """Make `path` that of a node, given the cursors of one before it; -1 where there is none."""
    at = current
    up = row
    while True:
        path[up] = _token(view, label(view, up, at))
        if up == 0:
            break
        inner_ = parent_inner(view, up, at)
        up -= 1
        old = node[up]
        if old >= 0 and inner_ == inner_at[up]:
            break
        steps = inner_ - inner_at[up]
        bits, directory = level(view, up, v.INNER_BITS), level(view, up, v.INNER_RANK)
        nodes = level(view, up, v.NODES)
        if old >= 0 and 0 < steps <= _FEW_STEPS:
            at = old
            for _ in range(steps):
                at = next_one(view.file, bits, at + 1, nodes)
            at = min(at, nodes - 1)
        else:
            last = (nodes - 1) // BLOCK_BITS
            at = select_between(view.file, bits, directory, False, 0, last, nodes, inner_)
        node[up], inner_at[up] = at, inner_


@jit
def decode_values(
    view: View, key_ids: npt.NDArray[np.int64], values: npt.NDArray[np.int64]
) -> None:
    """The values of key ids, all of which are in the key set."""
    at, width = scalar(view, v.VALUES), scalar(view, v.VALUE_BITS)
    for i in range(len(key_ids)):
        difference = packed_wide(view.file, at, width, key_ids[i]) if width > 0 else 0
        values[i] = scalar(view, v.VALUE_MIN) + difference  # modulo 2^64
