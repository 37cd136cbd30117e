"""Benchmark queries made from an artifact: what a model would propose near one of its keywords.

A query has a target keyword, drawn uniformly, and its neighbourhood: keywords that share none, one,
two, ... of its tokens, as many of each as there are up to a limit, a token shared counting twice.
The proposals of a step are the best K of a softmax over the neighbourhood's tokens at that
step, mixed with power-law noise over the most frequent tokens, all logits disturbed.

End log-probabilities are log(share of the neighbourhood with t tokens) + c t, where c is minus the
target's mean token log-probability: length is then neutral, while without it the best results
would all be of one or two tokens, whatever the beam width.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.trie import Trie
from flashtrie.formats.search import ABSENT

_NEIGHBOURS = 4096  # in all
_NOISE_SHARE = 0.3  # of the probability
_NOISE_EXPONENT = 1.1
_MIN_NOISE_TOKENS = 1 << 14
_DISTURBANCE = 0.5  # standard deviation of logits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Query(NamedTuple):
    """Proposals of one query."""

    tokens: npt.NDArray[np.uint32]  # [T, K], ABSENT where there are fewer
    logprobs: npt.NDArray[np.float32]  # [T, K], falling
    end_logprobs: npt.NDArray[np.float32]  # [T + 1]


class QueryMaker:
    """Draws queries of an artifact: query i is a function of the seed and i alone.

    Some 20 ms a query.
    """

    def __init__(self, trie: Trie, steps: int, top_k: int, seed: int) -> None:
        """For queries of T steps with K proposals each. Sorts the alphabet."""
        self._trie = trie
        self._steps = steps
        self._top_k = top_k
        self._seed = seed
        self._alphabet = trie.artifact.sections["alphabet"]
        self._order = np.argsort(self._alphabet)
        self._sorted = self._alphabet[self._order]
        size = min(len(self._alphabet), max(_MIN_NOISE_TOKENS, 4 * top_k))
        noise = np.arange(1, size + 1, dtype=np.float64) ** -_NOISE_EXPONENT
        self._noise = _NOISE_SHARE * noise / noise.sum()

    def draw(self, index: int) -> Query:
        """Query number `index`."""
        rng = np.random.default_rng([self._seed, index])
        target = int(rng.integers(len(self._trie)))
        key_ids, weights = self._neighbourhood(target, rng)
        tokens, offsets = self._trie.keywords_of(key_ids)
        lengths = np.diff(offsets)
        ranks = self._order[np.searchsorted(self._sorted, tokens)]
        query = Query(
            np.full((self._steps, self._top_k), ABSENT, np.uint32),
            np.full((self._steps, self._top_k), -np.inf, np.float32),
            np.full(self._steps + 1, -np.inf, np.float32),
        )
        of_target = []
        for step in range(self._steps):
            longer = np.flatnonzero(lengths > step)
            here = ranks[offsets[longer] + step]
            columns, logprobs = self._softmax(here, weights[longer], rng)
            best = _largest(logprobs, self._top_k)
            query.tokens[step, : len(best)] = self._alphabet[columns[best]]
            query.logprobs[step, : len(best)] = logprobs[best]
            if lengths[-1] > step:  # the target is the last
                of_target.append(float(logprobs[columns == ranks[offsets[-2] + step]][0]))
        neutral = -np.mean(of_target)
        for length in range(1, self._steps + 1):
            share = weights[lengths == length].sum() / weights.sum()
            if share > 0:
                query.end_logprobs[length] = np.log(share) + neutral * length
        return query

    def _neighbourhood(self, target: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Key ids and their weights; the last is the target."""
        starts, stops = self._trie.sharing_ranges(target)
        groups = len(starts) + 1
        count = _NEIGHBOURS // groups
        parts = [rng.integers(len(self._trie), size=count)]
        for start, stop in zip(starts, stops, strict=True):
            sizes = stop - start
            ends = np.cumsum(sizes)
            drawn = rng.integers(ends[-1], size=min(count, int(ends[-1])))
            level = np.searchsorted(ends, drawn, side="right")
            parts.append(start[level] + drawn - (ends - sizes)[level])
        parts.append(np.array([target]))
        weights = [np.full(len(part), 2.0**i / len(part)) for i, part in enumerate(parts)]
        return np.concatenate(parts), np.concatenate(weights)

    def _softmax(
        self, ranks: Ints, weights: Floats, rng: np.random.Generator
    ) -> tuple[Ints, Floats]:
        """Ranks that are proposed, and their log-probabilities: frequent ones, then rare ones."""
        size = len(self._noise)
        rare, where = np.unique(ranks[ranks >= size], return_inverse=True)
        columns = np.concatenate([np.arange(size), rare])
        places = ranks.copy()
        places[ranks >= size] = size + where
        mass = np.zeros(len(columns))
        mass[:size] = self._noise
        if len(ranks):
            share = np.bincount(places, weights, len(columns)) / weights.sum()
            mass += (1 - _NOISE_SHARE) * share
        logits = np.log(mass) + rng.normal(0, _DISTURBANCE, len(columns))
        return columns, logits - np.log(np.exp(logits).sum())


def _largest(values: Floats, count: int) -> Ints:
    """Where the largest stand, largest first. Values that are drawn do not tie."""
    if count < len(values):
        chosen = np.argpartition(-values, count)[:count]
        return chosen[np.argsort(-values[chosen])]
    return np.argsort(-values)
