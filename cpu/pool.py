"""The result pool of a query: the best B keywords of all steps so far, in order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flashtrie.cpu.beams import IN_TAIL, Beams
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import i64, pointer_f32, pointer_i32, pointer_i64, pointer_u32
from flashtrie.cpu.memory import Array
from flashtrie.cpu.order import Candidates, Scratch, best, score_of
from flashtrie.formats.jit import Int


class Pool(NamedTuple):
    """Up to B results, best first; equal scores by step, beam, position."""

    score: Array  # float32
    step: Array  # int32
    origin: Array  # uint32: beam * 2^16 + position of the proposal
    node: Array  # int64: key id of a keyword that ended in a tail, -1 - node of others
    capacity: int


def make_pool(beam_width: int) -> Pool:
    """Room for B results."""
    return Pool(
        np.empty(beam_width, np.float32),
        np.empty(beam_width, np.int32),
        np.empty(beam_width, np.uint32),
        np.empty(beam_width, np.int64),
        beam_width,
    )


@inner
def pool_at(table: Int) -> Pool:
    """Pointers to what a part of a memory.table_of names."""
    return Pool(
        pointer_f32(i64(table, 0)),
        pointer_i32(i64(table, 1)),
        pointer_u32(i64(table, 2)),
        pointer_i64(i64(table, 3)),
        i64(table, 4),
    )


@inner
def merge(
    pool: Pool,
    size: Int,
    keywords: Candidates,
    n: Int,
    beams: Beams,
    step: Int,
    scratch: Scratch,
) -> Int:
    """Merge `n` keywords of a step, whose pool scores are in their keys; the new size.

    They stand behind all that were merged before and have an equal score. So what is merged
    within one step must come by beam.
    """
    most = pool.capacity
    n = best(keywords, n, most, scratch)
    keys = keywords.key
    old = new = 0
    while old + new < most and (old < size or new < n):
        if new == n or (old < size and pool.score[old] >= score_of(keys[new])):
            old += 1
        else:
            new += 1
    # Backwards, so that nothing is overwritten before it has moved.
    total = old + new
    for place in range(total - 1, -1, -1):
        if new == 0:
            break
        score = score_of(keys[new - 1])
        if old > 0 and pool.score[old - 1] < score:
            old -= 1
            pool.score[place] = pool.score[old]
            pool.step[place] = pool.step[old]
            pool.origin[place] = pool.origin[old]
            pool.node[place] = pool.node[old]
        else:
            new -= 1
            origin = np.int64(keys[new] & np.uint64(0xFFFFFFFF))
            node = np.int64(keywords.node[new])
            pool.score[place] = score
            pool.step[place] = step
            pool.origin[place] = origin
            pool.node[place] = -1 - (beams.stop[origin >> 16] if node == IN_TAIL else node)
    return total
