"""Keywords that share a prefix: the nodes below a node are one range on each level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashtrie.cpu import view as v
from flashtrie.cpu.nodes import (
    children,
    find_child,
    inners_before,
    is_inner,
    keys_before,
    root_child,
)
from flashtrie.cpu.ranks import ABSENT, Ranks, rank_of
from flashtrie.cpu.view import View, level, scalar
from flashtrie.formats.jit import Int, jit


@jit
def sharing_ranges(
    view: View,
    ranks: Ranks,
    keyword: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> Int:
    """Key ids of the keywords that share prefixes with a keyword of the set.

    starts and stops [prefixes, D] get a range a level for each prefix of 1, 2, ... tokens that is
    an inner node; how many those are.
    """
    depth = scalar(view, v.LEVELS)
    node = -1
    first = stop = 0
    for row in range(min(len(keyword), min(depth, len(starts)))):
        label = rank_of(ranks, np.int64(keyword[row]))
        if label == ABSENT:
            return row
        node = root_child(view, label) if row == 0 else find_child(view, row, first, stop, label)
        if node < 0 or not is_inner(view, row, node):
            return row
        first, stop = node, node + 1
        for below in range(depth):
            starts[row, below] = stops[row, below] = 0
        below = row
        while first < stop:
            key = level(view, below, v.FIRST_KEY)
            inner, last = inners_before(view, below, first), inners_before(view, below, stop)
            starts[row, below] = key + keys_before(view, below, first, inner)
            stops[row, below] = key + keys_before(view, below, stop, last)
            if inner == last or below + 1 == depth:
                break
            first, _ = children(view, below, inner)
            _, stop = children(view, below, last - 1)
            below += 1
        first, stop = children(view, row, inners_before(view, row, node))
    return min(len(keyword), min(depth, len(starts)))
