"""The definition of key ids, lookup and search in plain Python: slow, and right by reading.

It knows nothing of the artifact. Keywords stand in a trie of dicts, one node per prefix; levels
and leaves are read off the number of keywords below a node, and a search walks the full prefixes,
so that there are no tails here. Every engine is compared with it bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Keyword = tuple[int, ...]
DEFAULT_LOGITS_TOP_K = 1000


class Node:
    """A prefix: what follows it, the keywords at and below it, and the keyword that ends here."""

    __slots__ = ("children", "count", "keyword")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.count = 0
        self.keyword: Keyword | None = None


class Result(NamedTuple):
    """One keyword found by a search."""

    key_id: int
    score: np.float32
    tokens: Keyword
    value: int | None


class Proposal(NamedTuple):
    position: int
    token: int
    logprob: np.float32


class Beam(NamedTuple):
    score: np.float32
    node: Node


class Oracle:
    """A key set by its definition, from all accepted rows, duplicates included."""

    def __init__(
        self,
        rows: Iterable[Sequence[int]],
        values: Iterable[int] | None = None,
        vocab_size: int | None = None,
    ) -> None:
        keywords = [tuple(int(token) for token in row) for row in rows]
        occurrences = Counter(token for keyword in keywords for token in keyword)
        self.alphabet = sorted(occurrences, key=lambda token: (-occurrences[token], token))
        self.ranks = {token: rank for rank, token in enumerate(self.alphabet)}
        self.vocab_size = max(self.alphabet) + 1 if vocab_size is None else vocab_size
        self.rows = len(keywords)

        self._value: dict[Keyword, int] | None = None
        if values is not None:
            self._value = {}
            for keyword, value in zip(keywords, values, strict=True):
                self._value[keyword] = min(value, self._value.get(keyword, value))

        self.root = Node()
        for keyword in set(keywords):
            self._insert(keyword)
        self.keywords = sorted(set(keywords), key=self._order)  # by key id
        self.key_ids = {keyword: key_id for key_id, keyword in enumerate(self.keywords)}

    def __len__(self) -> int:
        return len(self.keywords)

    def _insert(self, keyword: Keyword) -> None:
        node = self.root
        node.count += 1
        for token in keyword:
            node = node.children.setdefault(token, Node())
            node.count += 1
        node.keyword = keyword

    def level(self, keyword: Keyword) -> int:
        """Level of the keyword's node: of the first prefix that is its alone, or its own length."""
        node = self.root
        for depth, token in enumerate(keyword, 1):
            node = node.children[token]
            if node.count == 1:
                return depth
        return len(keyword)

    def _order(self, keyword: Keyword) -> tuple[int, list[int]]:
        level = self.level(keyword)
        return level, [self.ranks[token] for token in keyword[:level]]

    def level_counts(self) -> list[tuple[int, int, int, int, int]]:
        """Of each level: nodes, inner nodes, terminals, leaves with a tail, long tails."""
        nodes: dict[int, set[Keyword]] = {}
        leaves: dict[int, int] = Counter()
        terminals: dict[int, int] = Counter()
        tails: dict[int, int] = Counter()
        long_tails: dict[int, int] = Counter()
        for keyword in self.keywords:
            level = self.level(keyword)
            for depth in range(1, level + 1):
                nodes.setdefault(depth, set()).add(keyword[:depth])
            if self._node(keyword[:level]).count > 1:
                terminals[level] += 1
                continue
            leaves[level] += 1
            tails[level] += len(keyword) > level
            long_tails[level] += len(keyword) > level + 1
        return [
            (len(n), len(n) - leaves[d], terminals[d], tails[d], long_tails[d])
            for d, n in sorted(nodes.items())
        ]

    def _node(self, prefix: Keyword) -> Node:
        node = self.root
        for token in prefix:
            node = node.children[token]
        return node

    def lookup(self, keyword: Sequence[int]) -> int:
        """Key id, -1 where absent."""
        return self.key_ids.get(tuple(keyword), -1)

    def value(self, key_id: int) -> int | None:
        return None if self._value is None else self._value[self.keywords[key_id]]

    def dump(self) -> list[tuple[int, Keyword, int | None]]:
        """(key id, tokens, value) in key id order."""
        return [(i, keyword, self.value(i)) for i, keyword in enumerate(self.keywords)]

    def search(
        self,
        tokens: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        *,
        beam_width: int,
        top_k: int | None = None,
        end_logprobs: npt.ArrayLike | None = None,
        length_penalty: float = 0.0,
    ) -> list[Result]:
        """Results of one query, best first: tokens and logprobs [T, K], end_logprobs [T + 1]."""
        steps = [
            proposals(t, p, self.vocab_size, top_k)
            for t, p in zip(np.asarray(tokens), np.asarray(logprobs, np.float32), strict=True)
        ]
        end = None if end_logprobs is None else np.asarray(end_logprobs, np.float32)
        return self._beam_search(steps, beam_width, end, length_penalty)

    def search_logits(
        self,
        logits: npt.ArrayLike,
        *,
        beam_width: int,
        top_k: int | None = None,
        end_logprobs: npt.ArrayLike | None = None,
        length_penalty: float = 0.0,
    ) -> list[Result]:
        """The same from logits [T, W]."""
        count = DEFAULT_LOGITS_TOP_K if top_k is None else top_k
        steps = [logit_proposals(row, self.vocab_size, count) for row in np.asarray(logits)]
        end = None if end_logprobs is None else np.asarray(end_logprobs, np.float32)
        return self._beam_search(steps, beam_width, end, length_penalty)

    def _beam_search(
        self,
        steps: Sequence[Sequence[Proposal]],
        beam_width: int,
        end: npt.NDArray[np.float32] | None,
        length_penalty: float,
    ) -> list[Result]:
        beams = [Beam(np.float32(0.0), self.root)]
        pool: list[tuple[float, int, int, int, np.float32, Keyword]] = []
        for step, step_proposals in enumerate(steps, 1):
            proposed = {proposal.token: proposal for proposal in step_proposals}
            candidates: list[tuple[float, int, int, np.float32, Node]] = []
            for b, beam in enumerate(beams):
                for token in beam.node.children.keys() & proposed.keys():
                    node = beam.node.children[token]
                    position, _, logprob = proposed[token]
                    score = _add(beam.score, logprob)
                    if not math.isfinite(score):
                        continue
                    candidates.append((-float(score), b, position, score, node))
                    if node.keyword is not None:
                        final = pool_score(score, step, end, length_penalty)
                        if math.isfinite(final):
                            order = (-float(final), step, b, position)
                            pool.append((*order, final, node.keyword))
            # No two candidates have equal first three fields, so nodes are never compared.
            candidates.sort(key=lambda candidate: candidate[:3])
            extendable = [c for c in candidates if c[4].children]
            beams = [Beam(c[3], c[4]) for c in extendable[:beam_width]]
        pool.sort(key=lambda entry: entry[:4])
        results = []
        for *_, final, keyword in pool[:beam_width]:
            key_id = self.key_ids[keyword]
            results.append(Result(key_id, final, keyword, self.value(key_id)))
        return results


def _add(a: np.float32, b: np.float32) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(a + b)


def penalty(length: int, length_penalty: float) -> np.float32:
    """float32(float64(t) ** a)."""
    return np.float32(np.float64(length) ** np.float64(length_penalty))


def pool_score(
    score: np.float32,
    length: int,
    end: npt.NDArray[np.float32] | None,
    length_penalty: float,
) -> np.float32:
    """(score + end[t]) / penalty[t] + 0.0, all in float32."""
    if end is not None:
        score = _add(score, end[length])
    if length_penalty != 0:
        with np.errstate(over="ignore", under="ignore"):
            score = np.float32(score / penalty(length, length_penalty))
    return _add(score, np.float32(0.0))


def proposals(
    tokens: Iterable[Any], logprobs: Iterable[Any], vocab_size: int, top_k: int | None = None
) -> list[Proposal]:
    """What is left of one step's input, in input order; tokens outside the alphabet still count.

    Absent tokens go first, their log-probability unread, then -inf, then repeated tokens, then all
    but the `top_k` best.
    """
    left: list[Proposal] = []
    seen: set[int] = set()
    for position, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
        token, logprob = int(token), np.float32(logprob)
        if not 0 <= token < vocab_size:
            continue
        if np.isnan(logprob) or logprob == np.inf:
            raise ValueError(f"position {position}: {logprob}")
        if logprob == -np.inf or token in seen:
            continue
        seen.add(token)
        left.append(Proposal(position, token, logprob))
    if top_k is None:
        return left
    best = sorted(left, key=lambda p: (-float(p.logprob), p.position))[:top_k]
    return sorted(best)


def log_softmax(logits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Of one row over all its columns: float64, rounded to float32 once."""
    row = [float(x) for x in np.asarray(logits)]
    top = max(row)
    log_sum = math.log(math.fsum(math.exp(x - top) for x in row))
    return np.array([x - top - log_sum for x in row], np.float64).astype(np.float32)


def logit_proposals(logits: npt.ArrayLike, vocab_size: int, count: int) -> list[Proposal]:
    """The `count` largest of the columns below V in falling order, ties by lower token."""
    logprobs = log_softmax(logits)[:vocab_size]
    order = sorted(range(len(logprobs)), key=lambda token: (-float(logprobs[token]), token))
    left = [token for token in order[:count] if logprobs[token] != -np.inf]
    return [Proposal(i, token, logprobs[token]) for i, token in enumerate(left)]


def assert_search_equals(result: Any, expected: Sequence[Sequence[Result]]) -> None:
    """A SearchResult of `len(expected)` queries holds these results, scores bit for bit."""
    flat = [r for query in expected for r in query]
    counts = [0, *(len(query) for query in expected)]
    lengths = [0, *(len(r.tokens) for r in flat)]
    values = [r.value for r in flat]
    _assert_array(result.offsets, np.int64, np.cumsum(counts))
    _assert_array(result.key_ids, np.int64, [r.key_id for r in flat])
    scores = np.array([r.score for r in flat], np.float32)
    assert result.scores.dtype == np.float32
    assert result.scores.view(np.uint32).tolist() == scores.view(np.uint32).tolist(), (
        f"scores {result.scores.tolist()}, not {scores.tolist()}"
    )
    _assert_array(result.lengths, np.int32, lengths[1:])
    _assert_array(result.token_offsets, np.int64, np.cumsum(lengths))
    _assert_array(result.tokens, np.uint32, [token for r in flat for token in r.tokens])
    if result.values is None:
        assert all(value is None for value in values)
    else:
        _assert_array(result.values, np.int64, values)


def _assert_array(array: npt.NDArray[Any], dtype: Any, expected: Any) -> None:
    assert array.dtype == dtype
    assert array.tolist() == np.asarray(expected).tolist()
