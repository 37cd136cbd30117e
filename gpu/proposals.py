"""The best proposals of each step, where `top_k` is below the number given."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.gpu.arguments import by_value, token_words
from flashtrie.gpu.compiler import load
from flashtrie.gpu.plan import PROPOSAL_THREADS, wide_slot_bits

_TABLES_BYTES = 256 << 20  # of the hashes of all blocks, at most


def choose_proposals(
    trie_words: npt.NDArray[np.uint64], tokens: Any, logprobs: Any, limit: int
) -> Any:
    """Ranks of the `limit` best proposals of each step, 2^32 - 1 for all others: uint32 [Q, T, K].

    Positions are those of the input. A NaN or infinite log-probability is not chosen.
    """
    queries, steps, width = tokens.shape
    ranks = cupy.empty(tokens.shape, np.uint32)
    rows = queries * steps
    if ranks.size == 0:
        return ranks
    slot_bits = wide_slot_bits(width)
    table_bytes = 8 << slot_bits
    blocks = max(1, min(rows, _TABLES_BYTES // table_bytes, 1024))
    table = cupy.empty(blocks * table_bytes // 4, np.uint32)
    kernel = load("proposals.cu", "choose_proposals", {"THREADS": PROPOSAL_THREADS})
    sizes = (np.uint64(x) for x in (rows, width, limit, slot_bits))
    kernel(
        (blocks,),
        (PROPOSAL_THREADS,),
        (by_value(trie_words), by_value(token_words(tokens)), logprobs, ranks, table, *sizes),
    )
    return ranks
