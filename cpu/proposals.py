"""The proposals of a step: what is left of its input, best first, and a way to find one by rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import (
    float_of_bits,
    i64,
    pointer_f32,
    pointer_u16,
    pointer_u32,
    pointer_u64,
    u32,
)
from flashtrie.cpu.memory import Array
from flashtrie.cpu.order import Candidates, Scratch, order_key, sort
from flashtrie.cpu.ranks import ABSENT, Ranks, rank_of
from flashtrie.formats.jit import Int


class Proposals(NamedTuple):
    """Up to K proposals by falling log-probability, ties by position in the input."""

    rank: Array  # uint32 [K]
    logprob: Array  # float32 [K]
    position: Array  # uint32 [K], in the input
    bitmap: Array  # uint64, over ranks: proposed in this step
    index_of: Array  # uint16 [A], by rank: its index in the arrays above, if proposed
    foreign: Array  # uint32, a hash of tokens outside the alphabet
    foreign_size: int  # a power of two > K


def make_proposals(alphabet_size: int, k: int) -> Proposals:
    """For K proposals a step."""
    ranks = max(alphabet_size, 1 << 16)  # a low part of a wrong payload may be any 16 bits
    foreign_size = 1 << (2 * k).bit_length()
    return Proposals(
        np.empty(k, np.uint32),
        np.empty(k, np.float32),
        np.empty(k, np.uint32),
        np.zeros(ranks // 64 + 1, np.uint64),
        np.empty(ranks, np.uint16),
        np.empty(foreign_size, np.uint32),
        foreign_size,
    )


@inner
def proposals_at(table: Int) -> Proposals:
    """Pointers to what a part of a memory.table_of names."""
    return Proposals(
        pointer_u32(i64(table, 0)),
        pointer_f32(i64(table, 1)),
        pointer_u32(i64(table, 2)),
        pointer_u64(i64(table, 3)),
        pointer_u16(i64(table, 4)),
        pointer_u32(i64(table, 5)),
        i64(table, 6),
    )


@inner
def prepare(
    ranks: Ranks,
    vocab_size: Int,
    tokens: Int,
    logprobs: Int,
    k: Int,
    top_k: Int,
    proposals: Proposals,
    order: Candidates,
    scratch: Scratch,
) -> Int:
    """Fill `proposals` from a step's input, addresses of uint32 [k] and float32 [k]; how many.

    Absent tokens go first, then log-probabilities of -inf, then repeated tokens, then all but the
    `top_k` best, then tokens outside the alphabet. `proposals.bitmap` is clear before and set
    after; `clear` undoes that. `order` [k] is overwritten.
    """
    cuts = top_k < k
    if cuts:
        for i in range(proposals.foreign_size):
            proposals.foreign[i] = ABSENT
    left = 0
    for position in range(k):
        token: Int = u32(tokens, position)
        logprob = float_of_bits(u32(logprobs, position))
        if token >= vocab_size or logprob == -np.inf:
            continue
        rank = rank_of(ranks, token)
        if rank != ABSENT:
            mask = np.uint64(1) << np.uint64(rank & 63)
            if proposals.bitmap[rank >> 6] & mask != np.uint64(0):
                continue
            proposals.bitmap[rank >> 6] |= mask
        elif not cuts or not _is_new(proposals, token):
            continue
        # + 0.0: to the order, -0.0 is 0.0.
        order.key[left] = order_key(logprob + np.float32(0.0), 0, position)
        order.node[left] = rank
        left += 1
    sort(order, left, scratch)
    n = 0
    for i in range(left):
        rank = np.int64(order.node[i])
        if rank == ABSENT:
            continue
        if i >= top_k:
            proposals.rank[n] = rank
            drop(proposals, n)
            continue
        first = np.int64(order.key[i] & np.uint64(0xFFFF))
        proposals.rank[n] = rank
        proposals.position[n] = first
        proposals.logprob[n] = float_of_bits(u32(logprobs, first))
        proposals.index_of[rank] = n
        n += 1
    return n


@inner
def _is_new(proposals: Proposals, token: Int) -> Any:
    """Put a token outside the alphabet into the hash; whether it was not there.

    Such tokens too count once towards `top_k`.
    """
    mask = proposals.foreign_size - 1
    slot = (token * 0x9E3779B1) >> 7 & mask
    while proposals.foreign[slot] != ABSENT:
        if proposals.foreign[slot] == token:
            return False
        slot = (slot + 1) & mask
    proposals.foreign[slot] = token
    return True


@inner
def drop(proposals: Proposals, index: Int) -> None:
    """Take one proposal out of the bitmap."""
    rank = np.int64(proposals.rank[index])
    proposals.bitmap[rank >> 6] &= ~(np.uint64(1) << np.uint64(rank & 63))


@inner
def clear(proposals: Proposals, n: Int) -> None:
    """Clear the bitmap of the `n` proposals of a step."""
    for i in range(n):
        proposals.bitmap[proposals.rank[i] >> 6] = 0
