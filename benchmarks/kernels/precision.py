"""Precision@100 by beam width, against the best 100 of all keywords.

The truth is exhaustive: every keyword is decoded and scored for every query, with the sums of the
search, so its first 100 are the best by definition; no argument about a beam is needed. A result
among the first 100 is right if its score is at least that of the 100th best keyword.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.full_queries import Engine, search_batch
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.threads import Workers
from flashtrie.cpu.trie import Trie
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.jit import jit

BEST = 100
BEAM_WIDTHS = range(100, 1001, 100)
_CHUNK = 1 << 16  # keywords that a thread takes at a time

Floats = npt.NDArray[np.float32]


def curve(
    trie: Trie, engine: Engine, queries: Queries, beam_widths: Sequence[int] = BEAM_WIDTHS
) -> dict[str, Any]:
    """Mean precision@100 of an engine for each beam width."""
    least = scores_of_best(trie, queries)
    rows = []
    for beam_width in beam_widths:
        found = search_batch(engine, queries, beam_width)
        shares = []
        for query, wanted in enumerate(least):
            start, stop = found.offsets[query : query + 2]
            first = found.scores[start : min(stop, start + BEST)]
            shares.append(np.count_nonzero(first >= wanted[-1]) / len(wanted))
        rows.append({"bw": beam_width, "precision": round(float(np.mean(shares)), 4)})
    return {"queries": len(queries), "rows": rows}


def scores_of_best(trie: Trie, queries: Queries) -> list[Floats]:
    """Of each query the scores of its best keywords, up to 100, falling. Decodes all keywords."""
    row_of, tables = _tables(queries, trie.artifact.header.vocab_size)
    ends = queries.end_logprobs
    assert ends is not None
    best: list[Floats] = [np.zeros(0, np.float32) for _ in range(len(queries))]
    limits = np.full(len(queries), -np.inf, np.float32)
    lock = threading.Lock()

    def score(chunk: int) -> None:
        first = chunk * _CHUNK
        tokens, offsets = trie.keywords(first, min(first + _CHUNK, len(trie)))
        whose = np.empty((len(offsets) - 1) * len(queries), np.int32)
        scores = np.empty(len(whose), np.float32)
        found = score_keywords(tokens, offsets, row_of, tables, ends, limits.copy(), whose, scores)
        if found == 0:
            return
        whose, scores = whose[:found], scores[:found]
        with lock:
            for query in np.unique(whose).tolist():
                both = np.concatenate([best[query], scores[whose == query]])
                best[query] = -np.sort(-both)[:BEST]
                if len(best[query]) == BEST:
                    limits[query] = best[query][-1]

    workers = Workers()
    try:
        workers.run(score, -(-len(trie) // _CHUNK), usable_cores())
    finally:
        workers.close()
    return best


def _tables(queries: Queries, vocab_size: int) -> tuple[npt.NDArray[np.int32], Floats]:
    """Which row a step's token has, [T, V], -1 for none, and log-probabilities [rows, Q]."""
    assert queries.tokens is not None and queries.logprobs is not None
    count, steps, _ = queries.tokens.shape
    row_of = np.full((steps, vocab_size), -1, np.int32)
    tables: list[Floats] = []
    size = 0
    for step in range(steps):
        known = np.unique(queries.tokens[:, step])
        known = known[known < vocab_size]
        row_of[step, known] = np.arange(size, size + len(known))
        table = np.full((len(known), count), -np.inf, np.float32)
        for query in range(count):
            tokens = queries.tokens[query, step][::-1]  # of a repeated one the first stays
            there = tokens < vocab_size
            rows = row_of[step, tokens[there]] - size
            table[rows, query] = queries.logprobs[query, step][::-1][there]
        tables.append(table)
        size += len(known)
    return row_of, np.concatenate(tables)


@jit
def score_keywords(
    tokens: Any,
    offsets: Any,
    row_of: Any,
    tables: Any,
    ends: Any,
    limits: Any,
    whose: Any,
    scores: Any,
) -> int:
    """Pool scores above the query's limit into `whose` (the query) and `scores`; how many."""
    steps, queries = len(row_of), tables.shape[1]
    sums = np.empty(queries, np.float32)
    found = 0
    for i in range(len(offsets) - 1):
        start = offsets[i]
        length = offsets[i + 1] - start
        if length > steps:
            continue
        sums[:] = np.float32(0.0)
        possible = True
        for t in range(length):
            row = row_of[t, tokens[start + t]]
            if row < 0:
                possible = False
                break
            for q in range(queries):
                sums[q] += tables[row, q]
        if not possible:
            continue
        for q in range(queries):
            score = sums[q] + ends[q, length] + np.float32(0.0)
            if score > limits[q]:
                whose[found] = q
                scores[found] = score
                found += 1
    return found
