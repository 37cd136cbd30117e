"""The candidates of a step: which children of which beams are proposed, and what they score.

A node costs what its cheaper side costs: either all its children are held against the set of
proposals, or each proposal is searched among its children. Proposals stand by falling
log-probability and beams by falling score, so that only the first `limit` proposals of a beam can
still matter, and `limit` only falls from beam to beam: the others leave the set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashtrie.cpu import view as v
from flashtrie.cpu.beams import ENDS, IN_TAIL, Beams
from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import i64, leading_zeros, pointer_f32, pointer_u32, pointer_u64
from flashtrie.cpu.memory import Array
from flashtrie.cpu.nodes import (
    find_high_child,
    first_high,
    high_part,
    inners_before,
    is_inner,
    label_in_two,
    prefetch_node,
    root_child,
)
from flashtrie.cpu.order import Candidates, Scratch, cut, order_key, score_of
from flashtrie.cpu.pool import Pool, merge
from flashtrie.cpu.proposals import Proposals, drop
from flashtrie.cpu.succinct import bit, find_packed, packed
from flashtrie.cpu.view import View, level, scalar
from flashtrie.formats.jit import Int

_INFINITY = np.float32(np.inf)
_LOWER = np.uint64(0xFFFFFFFF)


class Hits(NamedTuple):
    """The proposed children of some beams."""

    found: Array  # uint64: the node in the upper half, IN_TAIL where there is none, and the label
    beam: Array  # uint32
    score: Array  # float32
    final: Array  # float32: pool score
    capacity: int


_BATCH = 64  # hits that are scored together, or more if the last beam of them has more


def make_hits(k: int) -> Hits:
    """Room for a batch, the last beam of which may have K hits."""
    capacity = _BATCH + k
    score, final = np.empty((2, capacity), np.float32)
    # One hit more is written, but not counted.
    found, beam = np.empty(capacity + 1, np.uint64), np.empty(capacity + 1, np.uint32)
    return Hits(found, beam, score, final, capacity)


@inner
def hits_at(table: Int) -> Hits:
    """Pointers to what a part of a memory.table_of names."""
    return Hits(
        pointer_u64(i64(table, 0)),
        pointer_u32(i64(table, 1)),
        pointer_f32(i64(table, 2)),
        pointer_f32(i64(table, 3)),
        i64(table, 4),
    )


@inner
def expand(
    view: View,
    row: Int,
    beams: Beams,
    n: Int,
    proposals: Proposals,
    limit: Int,
    beam_bound: np.float32,
    end: np.float32,
    penalty: np.float32,
    candidates: Candidates,
    keywords: Candidates,
    pool: Pool,
    pool_size: Int,
    hits: Hits,
    scratch: Scratch,
) -> tuple[Int, Int, Int]:
    """Find the candidates of the step that ends on the level in `row`.

    Of those that can be extended the best B, or more, are left in `candidates`, in no order; the
    keywords go to the pool. `limit` is at first the number of proposals; `beam_bound` is -inf, or
    inf where no beams are wanted. The result: how many candidates are left, the size of the pool,
    and how many children were found, whatever their score.
    """
    width = pool.capacity
    most = candidates.capacity - hits.capacity
    left = ending = found = 0
    pool_bound = pool.score[width - 1] if pool_size == width else -_INFINITY
    b = 0
    while True:
        done = b == n or limit == 0
        # Beams come in order, so what was kept before comes first where scores are equal: from
        # here on only a score above the bound counts. The same holds for the pool.
        if left > most:
            left, worst = cut(candidates, left, width, scratch)
            beam_bound = score_of(worst)
        if ending > most or done:
            pool_size = merge(pool, pool_size, keywords, ending, beams, row + 1, scratch)
            pool_bound = pool.score[width - 1] if pool_size == width else -_INFINITY
            ending = 0
        if done:
            return left, pool_size, found
        count = 0
        while b < n and count < _BATCH:
            before = beams.score[b]
            while limit > 0:
                score = before + proposals.logprob[limit - 1]
                if score > beam_bound or (score + end) / penalty > pool_bound:
                    break
                limit -= 1
                drop(proposals, limit)
            if limit == 0:
                break
            start, stop = beams.start[b], beams.stop[b]
            first = count
            if stop < 0:
                count = _tail_hit(beams.label[b], proposals, hits, count)
            elif row == 0:
                count = _root_hits(view, proposals, limit, hits, count)
            else:
                count = _node_hits(view, row, start, stop, proposals, limit, hits, count)
            for hit in range(first, count):
                hits.beam[hit] = b
            b += 1
        found += count
        count = _score(beams, proposals, beam_bound, pool_bound, end, penalty, hits, count)
        left, ending = _sort_out(
            view, row, beams, proposals, beam_bound, pool_bound, hits, count, candidates, left,
            keywords, ending,
        )  # fmt: skip


@inner
def _score(
    beams: Beams,
    proposals: Proposals,
    beam_bound: np.float32,
    pool_bound: np.float32,
    end: np.float32,
    penalty: np.float32,
    hits: Hits,
    count: Int,
) -> Int:
    """Score `count` hits and keep those above one of the bounds; how many. No branches."""
    kept = 0
    for hit in range(count):
        beam, found = hits.beam[hit], hits.found[hit]
        index = proposals.index_of[np.int64(found & _LOWER)]
        score = beams.score[np.int64(beam)] + proposals.logprob[np.int64(index)]
        final = (score + end) / penalty + np.float32(0.0)
        hits.beam[kept], hits.found[kept] = beam, found
        hits.score[kept], hits.final[kept] = score, final
        kept += 1 if (score > beam_bound) | (final > pool_bound) else 0
    return kept


@inner
def _sort_out(
    view: View,
    row: Int,
    beams: Beams,
    proposals: Proposals,
    beam_bound: np.float32,
    pool_bound: np.float32,
    hits: Hits,
    count: Int,
    candidates: Candidates,
    left: Int,
    keywords: Candidates,
    ending: Int,
) -> tuple[Int, Int]:
    """Put scored hits to the candidates if they go on, and to the keywords if they end.

    No branches: what a hit is cannot be foreseen. The new numbers of both.
    """
    row = min(row, scalar(view, v.LEVELS) - 1)  # below the last level all are in tails
    inners = level(view, row, v.INNER)
    leaves = level(view, row, v.NODES) - inners
    terminal, tail = level(view, row, v.TERMINAL), level(view, row, v.TAIL)
    for hit in range(count):
        found = np.int64(hits.found[hit] >> np.uint64(32))
        prefetch_node(view, row, found if found != IN_TAIL else 0)
    for hit in range(count):
        child = np.int64(hits.found[hit] >> np.uint64(32))
        beam = np.int64(hits.beam[hit])
        in_tail = child == IN_TAIL
        node: Int = 0 if in_tail else child
        before = inners_before(view, row, node)
        parts = is_inner(view, row, node)
        place = min(before, inners - 1) if parts else max(min(node - before, leaves - 1), 0)
        # Of an inner node: whether a keyword ends there. Of a leaf: whether it has a tail.
        marked = bit(view.file, terminal if parts else tail, place)
        ends = beams.label[beam] >= ENDS if in_tail else parts == marked
        goes_on = not ends if in_tail else parts | marked
        score, final = hits.score[hit], hits.final[hit]
        index = proposals.index_of[np.int64(hits.found[hit] & _LOWER)]
        position = np.int64(proposals.position[np.int64(index)])
        candidates.key[left] = order_key(score, beam, position)
        candidates.node[left] = child
        left += 1 if goes_on & (score > beam_bound) & (score < _INFINITY) else 0
        keywords.key[ending] = order_key(final, beam, position)
        keywords.node[ending] = child
        ending += 1 if ends & (final > pool_bound) & (final < _INFINITY) else 0
    return left, ending


@inner
def _hit(node: Int, label: Int) -> Any:
    return np.uint64(node << 32 | label)


@inner
def _is_proposed(proposals: Proposals, label: Int) -> Int:
    return np.int64(proposals.bitmap[label >> 6] >> np.uint64(label & 63) & np.uint64(1))


@inner
def _tail_hit(label: Int, proposals: Proposals, hits: Hits, count: Int) -> Int:
    rank = label & (ENDS - 1)
    hits.found[count] = _hit(IN_TAIL, rank)
    return count + _is_proposed(proposals, rank)


@inner
def _root_hits(view: View, proposals: Proposals, limit: Int, hits: Hits, count: Int) -> Int:
    for index in range(limit):
        label = np.int64(proposals.rank[index])
        child = root_child(view, label)
        hits.found[count] = _hit(child, label)
        count += 1 if child >= 0 else 0
    return count


@inner
def _node_hits(
    view: View,
    row: Int,
    start: Int,
    stop: Int,
    proposals: Proposals,
    limit: Int,
    hits: Hits,
    count: Int,
) -> Int:
    """Add the proposed ones of siblings `start` to `stop`: min(children, limit log children)."""
    boundary = first_high(view, row, start, stop)
    high = high_part(view, row, boundary, stop) if boundary < stop else 0
    probes = 66 - leading_zeros(np.uint64(stop - start))
    if stop - start <= limit * probes:
        count = _scan_low(view, row, start, boundary, proposals, hits, count)
        return _scan_high(view, row, boundary, stop, high, proposals, hits, count)
    file, low = view.file, level(view, row, v.LABEL_LOW)
    low_bits = level(view, row, v.LABEL_LOW_BITS)
    for index in range(limit):
        label = np.int64(proposals.rank[index])
        if label >> low_bits == 0:
            child = find_packed(file, low, low_bits, start, boundary, label)
        else:
            child = find_high_child(view, row, boundary, stop, high, label)
        hits.found[count] = _hit(child, label)
        count += 1 if child >= 0 else 0
    return count


@inner
def _scan_low(
    view: View, row: Int, start: Int, stop: Int, proposals: Proposals, hits: Hits, count: Int
) -> Int:
    """Hold children without a high part against the set of proposals.

    No branches: half of them may be in it.
    """
    file, low = view.file, level(view, row, v.LABEL_LOW)
    low_bits = level(view, row, v.LABEL_LOW_BITS)
    # Labels differ, so there are no more hits than proposals, but in a wrong payload.
    most = hits.capacity
    for child in range(start, stop):
        label = packed(file, low, low_bits, child)
        hits.found[count] = _hit(child, label)
        count = min(count + _is_proposed(proposals, label), most)
    return count


@inner
def _scan_high(
    view: View,
    row: Int,
    start: Int,
    stop: Int,
    high: Int,
    proposals: Proposals,
    hits: Hits,
    count: Int,
) -> Int:
    """The same for children with a high part, the first at index `high`."""
    last = scalar(view, v.ALPHABET_SIZE) - 1
    most = hits.capacity
    high -= start
    for child in range(start, stop):
        label = min(label_in_two(view, row, child, high + child), last)
        hits.found[count] = _hit(child, label)
        count = min(count + _is_proposed(proposals, label), most)
    return count
