"""The search of one query, in compiled code from its first step to its results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashtrie.cpu import view as v
from flashtrie.cpu.beams import Beams, advance, beams_at, make_beams
from flashtrie.cpu.expand import Hits, expand, hits_at, make_hits
from flashtrie.cpu.instructions import i64, pointer_f32, pointer_i64, pointer_u32, u32
from flashtrie.cpu.memory import PART_BYTES, Array
from flashtrie.cpu.nodes import inners_before, key_id
from flashtrie.cpu.order import (
    Candidates,
    Scratch,
    best,
    candidates_at,
    make_candidates,
    make_scratch,
    scratch_at,
)
from flashtrie.cpu.pool import Pool, make_pool, pool_at
from flashtrie.cpu.proposals import Proposals, clear, make_proposals, prepare, proposals_at
from flashtrie.cpu.ranks import Ranks
from flashtrie.cpu.view import View, scalar
from flashtrie.formats.jit import Int, jit

_INFINITY = np.float32(np.inf)
_MIN_SLACK = 256  # candidates that a buffer takes beyond B before it is cut, or B / 2


class Memory(NamedTuple):
    """What a search of one query writes to: O(T B + K), and a table of A entries of two bytes.

    Its content does not matter between queries, but that no proposal is marked.
    """

    proposals: Proposals
    beams: Beams
    next_beams: Beams
    origins: Array  # uint32 [T, B]: where the beams after each step came from
    candidates: Candidates
    keywords: Candidates
    pool: Pool
    hits: Hits
    scratch: Scratch


# Where the parts stand in the table that a kernel gets.
_PLACE = {name: row * PART_BYTES for row, name in enumerate(Memory._fields)}
PROPOSALS = _PLACE["proposals"]
BEAMS = _PLACE["beams"]
NEXT_BEAMS = _PLACE["next_beams"]
ORIGINS = _PLACE["origins"]
CANDIDATES = _PLACE["candidates"]
KEYWORDS = _PLACE["keywords"]
POOL = _PLACE["pool"]
HITS = _PLACE["hits"]
SCRATCH = _PLACE["scratch"]


def make_memory(alphabet_size: int, steps: int, k: int, beam_width: int) -> Memory:
    """Memory for queries of these sizes."""
    hits = make_hits(k)
    capacity = beam_width + max(beam_width // 2, _MIN_SLACK) + hits.capacity
    return Memory(
        make_proposals(alphabet_size, k),
        make_beams(beam_width),
        make_beams(beam_width),
        np.empty((steps, beam_width), np.uint32),
        make_candidates(capacity),
        make_candidates(capacity),
        make_pool(beam_width),
        hits,
        make_scratch(capacity),
    )


@jit
def search_query(
    view: View,
    ranks: Ranks,
    tokens: Int,
    logprobs: Int,
    steps: Int,
    k: Int,
    top_k: Int,
    end_logprobs: Int,
    penalties: Int,
    memory: Int,
    counts: Int,
) -> Int:
    """Search one query; how many results there are in `memory.pool`.

    Addresses: tokens and logprobs of uint32 and float32 [steps, k], end_logprobs and penalties of
    float32 [steps + 1], `memory` of a Memory's table. `counts`, of int64 [2, steps], gets the beams
    after each step and the candidates found in it; where it is 0 the last step makes no beams,
    which nothing needs.
    """
    proposals = proposals_at(memory + PROPOSALS)
    beams, next_beams = beams_at(memory + BEAMS), beams_at(memory + NEXT_BEAMS)
    candidates, keywords = candidates_at(memory + CANDIDATES), candidates_at(memory + KEYWORDS)
    pool, hits = pool_at(memory + POOL), hits_at(memory + HITS)
    scratch = scratch_at(memory + SCRATCH)
    origins: Any = pointer_u32(i64(memory + ORIGINS, 0))
    counted: Any = pointer_i64(counts)
    end, penalty = pointer_f32(end_logprobs), pointer_f32(penalties)
    width = pool.capacity
    counting = counts != 0
    beams.score[0] = 0.0
    beams.stop[0] = 0
    n = 1
    size = 0
    for row in range(steps):
        offset = row * k * 4
        limit = prepare(
            ranks, scalar(view, v.VOCAB_SIZE), tokens + offset, logprobs + offset, k, top_k,
            proposals, candidates, scratch,
        )  # fmt: skip
        makes_beams = counting or row + 1 < steps
        left, size, count = expand(
            view, row, beams, n, proposals, limit, -_INFINITY if makes_beams else _INFINITY,
            end[row + 1], penalty[row + 1], candidates, keywords, pool, size, hits, scratch,
        )  # fmt: skip
        clear(proposals, limit)
        n = best(candidates, left, width, scratch)
        if counting:
            counted[row], counted[steps + row] = n, count
        if n == 0 or not makes_beams:
            break
        advance(view, row, beams, candidates, n, next_beams, origins, row * width)
        beams, next_beams = next_beams, beams
    return size


@jit
def write_results(
    view: View, memory: Int, n: Int, k: Int, tokens: Int, key_ids: Int, flat: Int
) -> None:
    """Key ids and tokens of the `n` results in the pool, from where their beams came from.

    Addresses: tokens, those proposed, of uint32 [T, k]; key_ids of int64 [n]; flat, the tokens of
    all results, of uint32.
    """
    pool = pool_at(memory + POOL)
    origins: Any = pointer_u32(i64(memory + ORIGINS, 0))
    to_key_ids, to_tokens = pointer_i64(key_ids), pointer_u32(flat)
    end = 0
    for i in range(n):
        step = np.int64(pool.step[i])
        node = pool.node[i]
        if node < 0:
            node = -1 - node
            node = key_id(view, step - 1, node, inners_before(view, step - 1, node))
        to_key_ids[i] = node
        end += step
        origin = np.int64(pool.origin[i])
        for row in range(step - 1, -1, -1):
            to_tokens[end - step + row] = u32(tokens, row * k + (origin & 0xFFFF))
            if row > 0:
                origin = np.int64(origins[(row - 1) * pool.capacity + (origin >> 16)])
