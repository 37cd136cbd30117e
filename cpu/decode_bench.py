"""From logits to keywords: queries whose logits have an artifact's proposals on top; figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.full_queries import Drawer, draw_full
from flashtrie.cpu.queries import QueryMaker
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.trie import Trie
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.progress import Progress
from flashtrie.formats.search import check_limits

TURNS = 16
_DIFFERENT_BYTES = 1 << 30  # of logits, which take turns
_MOST_DIFFERENT = 16

# Seconds of the selection of proposals and of the search, of turns over some batches of logits.
Timer = Callable[[Sequence[Queries], int, int, int], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Row:
    """Medians for batches of Q queries, from logits [Q, T, V] to keywords.

    The shares are those of the log-softmax with its top K, and of the search. The rate counts the
    logits once, over the time of the former.
    """

    bw: int
    batch: int
    top_k: int
    steps: int
    vocab: int
    microseconds: float
    proposals_share: float
    search_share: float
    proposals_microseconds: float
    terabytes_per_second: float

    def as_json(self) -> dict[str, Any]:
        """The row as the command line gives it."""
        return asdict(self)


def measure(
    trie: Trie,
    *,
    beam_widths: Sequence[int],
    batches: Sequence[int],
    top_k: int,
    steps: int,
    seed: int,
    timer: Timer | None = None,
    progress: Progress | None = None,
) -> Iterator[Row]:
    """A row for each beam width and batch, of queries that keep the beam full.

    Raises UsageError where the artifact is too small for a beam width.
    """
    timer = timer or by_clock(trie)
    drawer = Drawer(QueryMaker(trie, steps, top_k, seed))
    vocab = trie.artifact.header.vocab_size
    for beam_width in beam_widths:
        check_limits(beam_width, top_k)
        for batch in batches:
            each = batch * steps * vocab * 4
            different = max(1, min(_MOST_DIFFERENT, _DIFFERENT_BYTES // each))
            full = draw_full(
                drawer, trie, beam_width, steps, batch * different, len(trie), progress
            ).queries
            rng = np.random.default_rng(seed)
            rows = np.arange(batch * different) % len(full)
            parts = [_with_logits(full, part, vocab, rng) for part in rows.reshape(-1, batch)]
            seconds = timer(parts, beam_width, top_k, TURNS)
            chosen, searched = np.median(seconds, axis=0).tolist()
            yield Row(
                bw=beam_width,
                batch=batch,
                top_k=top_k,
                steps=steps,
                vocab=vocab,
                microseconds=(chosen + searched) * 1e6,
                proposals_share=chosen / (chosen + searched),
                search_share=searched / (chosen + searched),
                proposals_microseconds=chosen * 1e6,
                terabytes_per_second=each / chosen / 1e12,
            )


def by_clock(trie: Trie) -> Timer:
    """Times the two parts on the CPU."""
    from flashtrie.cpu.logits import logit_proposals
    from flashtrie.cpu.threads import Workers

    def seconds(
        parts: Sequence[Queries], beam_width: int, top_k: int, turns: int
    ) -> npt.NDArray[np.float64]:
        workers = Workers()
        vocab = trie.artifact.header.vocab_size
        times = []
        try:
            for turn in range(turns + 1):  # the first may compile
                part = parts[turn % len(parts)]
                assert part.logits is not None
                started = time.perf_counter()
                found = logit_proposals(part.logits, vocab, top_k, workers, usable_cores())
                chosen = time.perf_counter()
                trie.search(*found, beam_width=beam_width, end_logprobs=part.end_logprobs)
                times.append((chosen - started, time.perf_counter() - chosen))
        finally:
            workers.close()
        return np.array(times[1:])

    return seconds


def _with_logits(
    queries: Queries, rows: npt.NDArray[np.int64], vocab: int, rng: np.random.Generator
) -> Queries:
    """Some queries with logits whose best are the proposals; all others are well below them."""
    assert queries.tokens is not None and queries.logprobs is not None
    tokens, logprobs = queries.tokens[rows], queries.logprobs[rows]
    logits = rng.standard_normal((*tokens.shape[:2], vocab), np.float32)
    np.abs(logits, out=logits)
    lowest = np.where(np.isfinite(logprobs), logprobs, 0).min(axis=2, keepdims=True)
    np.subtract(lowest - 1, logits, out=logits)
    query, step, position = np.nonzero((tokens < vocab) & np.isfinite(logprobs))
    logits[query, step, tokens[query, step, position]] = logprobs[query, step, position]
    end = None if queries.end_logprobs is None else queries.end_logprobs[rows]
    return Queries(end_logprobs=end, logits=logits)
