"""From logits to proposals: log-softmax in float64, and the best K columns of each row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.memory import PART_BYTES, table_of
from flashtrie.cpu.order import (
    best,
    candidates_at,
    cut,
    make_candidates,
    make_scratch,
    order_key,
    score_of,
    scratch_at,
)
from flashtrie.cpu.threads import Workers
from flashtrie.formats.errors import InputError
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.search import ABSENT

_BLOCK = 1 << 14  # columns in float64 that stay in the first caches
_MIN_SLACK = 1024


def logit_proposals(
    logits: npt.NDArray[Any], vocab_size: int, top_k: int, workers: Workers, threads: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
    """Tokens and log-probabilities [Q, T, min(K, W, V)] of logits [Q, T, W], best first.

    The log-softmax is over all W columns; those at or above the vocabulary are then left out, and
    so are those of -inf: ABSENT stands in their place. Ties go to the lower token. Raises
    InputError for NaN and +inf, naming query, step (from 1) and column. Two passes over a row,
    a row a thread.
    """
    queries, steps, columns = logits.shape
    width = min(top_k, columns, vocab_size)
    tokens = np.full((queries, steps, width), ABSENT, np.uint32)
    logprobs = np.full((queries, steps, width), -np.inf, np.float32)

    def select(row: int) -> None:
        query, step = divmod(row, steps)
        where = f"query {query}, step {step + 1}"
        _select_row(
            logits[query, step], vocab_size, tokens[query, step], logprobs[query, step], where
        )

    if width:
        workers.run(select, queries * steps, threads)
    return tokens, logprobs


def _select_row(
    row: npt.NDArray[Any],
    vocab_size: int,
    tokens: npt.NDArray[np.uint32],
    logprobs: npt.NDArray[np.float32],
    where: str,
) -> None:
    top = float(row.max())
    if not top < math.inf:
        column = int(np.argmax(~(row < np.inf)))
        raise InputError(
            f"logit {row[column]}", f"{where}, column {column}", hint="Logits are finite or -inf"
        )
    if top == -math.inf:
        return
    blocks = range(0, len(row), _BLOCK)
    sums = [np.exp(row[i : i + _BLOCK].astype(np.float64) - top).sum() for i in blocks]
    log_sum = math.log(math.fsum(sums))
    width = len(tokens)
    capacity = width + max(width, _MIN_SLACK) + _BLOCK
    memory = make_candidates(capacity), make_scratch(capacity)
    table = table_of(*memory)
    at = table.ctypes.data
    n, bound = 0, np.float32(-np.inf)
    for start in range(0, min(len(row), vocab_size), _BLOCK):
        block = row[start : min(start + _BLOCK, vocab_size)].astype(np.float64)
        n, bound = _take(block, start, top, log_sum, at, n, bound, width)
    _finish(at, n, width, tokens, logprobs)


@jit
def _take(
    logits: npt.NDArray[np.float64],
    start: Int,
    top: float,
    log_sum: float,
    table: Int,
    n: Int,
    bound: np.float32,
    width: Int,
) -> tuple[Int, np.float32]:
    """Add the log-probabilities above `bound` of a block; the new number and bound.

    Blocks come by rising column, so that of columns with equal ones the first are kept.
    """
    found = candidates_at(table)
    if n + len(logits) > found.capacity:
        n, worst = cut(found, n, width, scratch_at(table + PART_BYTES))
        bound = score_of(worst)
    for i in range(len(logits)):
        # + 0.0: to the order, -0.0 is 0.0.
        logprob = np.float32(logits[i] - top - log_sum) + np.float32(0.0)
        if logprob > bound:
            found.key[n] = order_key(logprob, 0, 0) | np.uint64(start + i)
            n += 1
    return n, bound


@jit
def _finish(
    table: Int,
    n: Int,
    width: Int,
    tokens: npt.NDArray[np.uint32],
    logprobs: npt.NDArray[np.float32],
) -> None:
    found = candidates_at(table)
    n = best(found, n, width, scratch_at(table + PART_BYTES))
    for i in range(n):
        tokens[i] = found.key[i] & np.uint64(0xFFFFFFFF)
        logprobs[i] = score_of(found.key[i])
