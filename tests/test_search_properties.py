"""Search of built tries equals the oracle's bit for bit, in any batch and with any threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashtrie import SearchResult, Trie
from tests import strategies
from tests.oracle import Oracle, Result, assert_search_equals
from tests.strategies import LOW_BITS, TAILS, Query

layouts = st.fixed_dictionaries(
    {"tails": st.sampled_from(TAILS), "low_bits": st.sampled_from(LOW_BITS)}
)
beam_widths = st.sampled_from([1, 2, 7, 64, 65, 1000])


def at(query: Query, i: int) -> Query:
    return Query(
        query.tokens[i : i + 1],
        query.logprobs[i : i + 1],
        None if query.end_logprobs is None else query.end_logprobs[i : i + 1],
    )


def concatenate(queries: Sequence[Query]) -> Query:
    return Query(
        np.concatenate([q.tokens for q in queries]),
        np.concatenate([q.logprobs for q in queries]),
        np.concatenate([q.end_logprobs for q in queries if q.end_logprobs is not None]),
    )


def assert_search(
    trie: Trie,
    oracle: Oracle,
    query: Query,
    threads: Sequence[int] = (1, 2, 3),
    **options: Any,
) -> list[list[Result]]:
    """The whole batch with each number of threads, and each query alone, equal the oracle."""

    def search(q: Query, **more: Any) -> SearchResult:
        return trie.search(q.tokens, q.logprobs, end_logprobs=q.end_logprobs, **options, **more)

    expected = []
    for i in range(len(query.tokens)):
        end = None if query.end_logprobs is None else query.end_logprobs[i]
        expected.append(
            oracle.search(query.tokens[i], query.logprobs[i], end_logprobs=end, **options)
        )
    for count in threads:
        assert_search_equals(search(query, threads=count), expected)
    assert_search_equals(search(query), expected)
    if len(expected) > 1:
        for i in range(len(expected)):
            assert_search_equals(search(at(query, i)), expected[i : i + 1])
    return expected


@given(st.data(), strategies.key_rows(), layouts)
def test_small_searches(build_trie, data, rows, layout):
    oracle = rows.oracle()
    with build_trie(rows.rows, rows.values, **layout) as trie:
        for _ in range(4):
            query = data.draw(strategies.queries(oracle))
            assert_search(trie, oracle, query, **data.draw(strategies.search_options))


@given(st.data(), strategies.key_rows(valued=False), layouts, st.sampled_from([1, 10**6]))
def test_a_vocabulary_larger_than_the_tokens(build_trie, data, rows, layout, more):
    """Tokens that are in the vocabulary but in no keyword are kept by top_k, and find nothing."""
    vocab_size = min(rows.oracle().vocab_size + more, 2**32 - 1)
    oracle = rows.oracle(vocab_size)
    with build_trie(rows.rows, vocab_size=vocab_size, **layout) as trie:
        for _ in range(3):
            query = data.draw(strategies.queries(oracle))
            assert_search(trie, oracle, query, **data.draw(strategies.search_options))


@given(strategies.large_key_rows(), layouts, st.integers(0, 2**32 - 1), beam_widths, st.booleans())
def test_large_searches(build_trie, rows, layout, seed, beam_width, with_top_k):
    oracle = rows.oracle()
    rng = np.random.default_rng(seed)
    steps, width = int(rng.integers(1, 10)), int(rng.choice([1, 31, 33, 64, 200]))
    with build_trie(rows.rows, rows.values, **layout) as trie:
        batch = concatenate([strategies.walk_query(oracle, rng, steps, width) for _ in range(3)])
        options = {"beam_width": beam_width, "top_k": width // 2 + 1 if with_top_k else None}
        assert_search(trie, oracle, batch, **options)
        assert_search(trie, oracle, batch, threads=(1,), length_penalty=0.8, **options)


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("low_bits", LOW_BITS)
def test_every_layout_and_batches_of_64(build_trie, tails, low_bits):
    rng = np.random.default_rng(9)
    tokens = np.minimum(rng.zipf(1.4, (5000, 7)), 2**31) * 2 - 2
    lengths = rng.integers(1, 8, 5000)
    rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]
    oracle = strategies.Rows(rows, None).oracle()
    batch = concatenate([strategies.walk_query(oracle, rng, 7, 40) for _ in range(64)])
    with build_trie(rows, tails=tails, low_bits=low_bits) as trie:
        expected = assert_search(trie, oracle, batch, beam_width=20)
    assert sum(len(results) for results in expected) > 600


@pytest.mark.parametrize("tails", TAILS)
def test_a_search_down_a_long_chain(build_trie, tails):
    chain = tuple(np.random.default_rng(3).integers(0, 50, 4096).tolist())
    rows = [chain, chain[:-1], chain[:2000], chain[:2000] + chain[:90], chain[:7]]
    oracle = strategies.Rows(rows, None).oracle()
    tokens = np.stack([chain, np.roll(chain, 1), np.full(4096, 3)], axis=1)[np.newaxis]
    logprobs = np.full(tokens.shape, -0.125, np.float32)
    with build_trie(rows, tails=tails) as trie:
        query = Query(tokens, logprobs, None)
        expected = assert_search(trie, oracle, query, beam_width=8, length_penalty=0.5)
        assert 4096 in [len(r.tokens) for r in expected[0]]


def test_many_children_and_many_proposals(build_trie):
    """A node with more children than proposals, one with fewer, and all tokens proposed."""
    rows = [(0, t) for t in range(3000)] + [(1, t, 2) for t in range(0, 3000, 500)] + [(2, 7)]
    oracle = strategies.Rows(rows, None).oracle()
    rng = np.random.default_rng(0)
    tokens = rng.permuted(np.tile(np.arange(3000), (1, 3, 1)), axis=2)
    logprobs = (-0.5 * rng.integers(0, 50, tokens.shape)).astype(np.float32)
    with build_trie(rows) as trie:
        for beam_width in (1, 2, 500, 65_536):
            query = Query(tokens, logprobs, None)
            assert_search(trie, oracle, query, threads=(2,), beam_width=beam_width)


@given(st.data(), strategies.key_rows(), layouts, st.sampled_from([1, 3, 40]))
def test_logits(build_trie, data, rows, layout, columns):
    """Two float64 log-softmaxes round to unequal float32s with odds of some 1e-8 a number."""
    small = [tuple(token % 37 for token in row) for row in rows.rows]
    oracle = strategies.Rows(small, rows.values).oracle()
    logit = st.one_of(st.integers(-40, 40).map(lambda n: n / 4), st.just(-np.inf))
    steps = data.draw(st.integers(1, 4))
    shape = (data.draw(st.integers(1, 2)), steps, columns)
    count = int(np.prod(shape))
    flat = data.draw(st.lists(logit, min_size=count, max_size=count))
    logits = np.array(flat, np.float32).reshape(shape)
    logits[:, :, -1] = 0.0  # A row of -inf alone has no log-softmax.
    options = data.draw(strategies.search_options)
    end = data.draw(st.sampled_from([None, np.linspace(0, -3, steps + 1, dtype=np.float32)]))
    expected = [oracle.search_logits(q, end_logprobs=end, **options) for q in logits]
    ends = None if end is None else np.tile(end, (len(logits), 1))
    with build_trie(small, rows.values, **layout) as trie:
        for threads in (1, 2):
            result = trie.search_logits(logits, end_logprobs=ends, threads=threads, **options)
            assert_search_equals(result, expected)


def test_logits_keep_1000_unless_told(build_trie):
    rows = [(t,) for t in range(1500)]
    oracle = strategies.Rows(rows, None).oracle()
    logits = np.random.default_rng(1).permutation(1500).astype(np.float32).reshape(1, 1, -1) / 64
    with build_trie(rows) as trie:
        result = trie.search_logits(logits, beam_width=2000)
        assert_search_equals(result, [oracle.search_logits(logits[0], beam_width=2000)])
        assert len(result.key_ids) == 1000
        result = trie.search_logits(logits, beam_width=2000, top_k=1200)
        assert len(result.key_ids) == 1200
