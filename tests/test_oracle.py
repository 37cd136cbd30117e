"""The oracle itself, against cases worked by hand from the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests import strategies
from tests.oracle import (
    Keyword,
    Oracle,
    log_softmax,
    logit_proposals,
    penalty,
    pool_score,
    proposals,
)

INF = np.inf


def found(
    oracle: Oracle, tokens: Any, logprobs: Any, **options: Any
) -> list[tuple[Keyword, float]]:
    options.setdefault("beam_width", 10)
    return [(r.tokens, float(r.score)) for r in oracle.search(tokens, logprobs, **options)]


def test_ranks_by_falling_occurrences_over_all_rows_then_token():
    assert Oracle([(7, 3), (3, 9), (3, 9), (2,)]).alphabet == [3, 9, 2, 7]
    # Twice in one row is two occurrences.
    assert Oracle([(5, 5), (4,)]).alphabet == [5, 4]


def test_a_lone_keyword_is_a_leaf_on_level_one():
    oracle = Oracle([(1, 2, 3, 4)])
    assert oracle.level((1, 2, 3, 4)) == 1
    assert oracle.level_counts() == [(1, 0, 0, 1, 1)]


def test_a_shared_prefix_and_one_node_more():
    oracle = Oracle([(1, 2, 3), (1, 4, 5)])
    assert [oracle.level(k) for k in oracle.keywords] == [2, 2]
    assert oracle.level_counts() == [(1, 1, 0, 0, 0), (2, 0, 0, 2, 0)]


def test_prefix_keywords_are_terminal_inner_nodes():
    oracle = Oracle([(1,), (1, 2), (1, 2, 3)])
    assert oracle.keywords == [(1,), (1, 2), (1, 2, 3)]
    assert oracle.level_counts() == [(1, 1, 1, 0, 0), (1, 1, 1, 0, 0), (1, 0, 0, 0, 0)]


def test_key_ids_by_level_then_ranks():
    # Occurrences: 9 three times, 5 and 8 twice, 1 and 2 once: ranks 9, 5, 8, 1, 2.
    oracle = Oracle([(8, 9), (8, 5), (9, 1, 2), (5,), (9,)])
    # Level 1: 9 (terminal, rank 0), 5 (leaf, rank 1), 8 (no keyword). Level 2: [9,1] of (9,1,2),
    # then 8's children by rank: 9, 5.
    assert oracle.alphabet == [9, 5, 8, 1, 2]
    assert oracle.keywords == [(9,), (5,), (9, 1, 2), (8, 9), (8, 5)]
    assert oracle.level_counts() == [(3, 2, 1, 0, 0), (3, 0, 0, 1, 0)]


def test_duplicates_are_one_keyword_with_the_smallest_value():
    oracle = Oracle([(1, 2), (3,), (1, 2)], [7, 5, -4])
    assert oracle.dump() == [(0, (1, 2), -4), (1, (3,), 5)]


def test_a_chain_of_4096_tokens():
    chain = (0, 1) * 2048
    oracle = Oracle([chain, chain[:-1]])
    assert [len(k) for k in oracle.keywords] == [4095, 4096]
    assert len(oracle.level_counts()) == 4096


def test_absent_then_minus_infinity_then_repeated_then_top_k():
    tokens = [4, -1, 10, 4, 5, 5, 6, 7]
    logprobs = [-INF, np.nan, INF, -3.0, -1.0, 0.0, -1.0, -2.0]
    left = proposals(tokens, logprobs, vocab_size=10)
    assert [(p.position, p.token, float(p.logprob)) for p in left] == [
        (3, 4, -3.0), (4, 5, -1.0), (6, 6, -1.0), (7, 7, -2.0)
    ]  # fmt: skip
    assert [p.position for p in proposals(tokens, logprobs, 10, top_k=3)] == [4, 6, 7]
    assert [p.position for p in proposals(tokens, logprobs, 10, top_k=1)] == [4]


@pytest.mark.parametrize("bad", [np.nan, INF])
def test_nan_and_infinity_are_refused_even_at_a_repeat(bad):
    with pytest.raises(ValueError, match="position 1"):
        proposals([3, 3], [0.0, bad], vocab_size=4)


def test_candidates_are_ordered_by_score_beam_and_proposal():
    oracle = Oracle([(a, b) for a in (1, 2) for b in (1, 2)])
    tokens = [[2, 1], [2, 1]]
    assert found(oracle, tokens, [[0, 0], [0, 0]]) == [
        ((2, 2), 0), ((2, 1), 0), ((1, 2), 0), ((1, 1), 0)
    ]  # fmt: skip
    assert found(oracle, tokens, [[-1, 0], [0, 0]])[0] == ((1, 2), 0)


def test_only_candidates_that_can_be_extended_take_beams():
    # [5] is the best at step 1 but nothing follows it: with one beam, [6] is extended.
    oracle = Oracle([(5,), (6, 7)])
    tokens, logprobs = [[5, 6], [7, 7]], [[0, -1], [0, 0]]
    assert found(oracle, tokens, logprobs, beam_width=1) == [((5,), 0)]
    assert found(oracle, tokens, logprobs, beam_width=1, end_logprobs=[0, -INF, 0]) == [
        ((6, 7), -1)
    ]


def test_a_beam_that_falls_out_is_lost():
    oracle = Oracle([(1, 3), (2, 4)])
    tokens, logprobs = [[1, 2], [3, 4]], [[0, -1], [-9, 0]]
    assert found(oracle, tokens, logprobs, beam_width=1) == [((1, 3), -9)]
    assert found(oracle, tokens, logprobs, beam_width=2) == [((2, 4), -1), ((1, 3), -9)]


def test_pool_ties_by_step_then_beam_then_proposal():
    oracle = Oracle([(1,), (1, 2), (3, 2), (1, 4)])
    results = found(oracle, [[3, 1], [4, 2]], [[0, 0], [0, 0]])
    assert [tokens for tokens, _ in results] == [(1,), (3, 2), (1, 4), (1, 2)]


def test_scores_are_float32_sums_in_step_order():
    oracle = Oracle([(1, 2, 3)])
    big = np.float32(2**24)
    assert found(oracle, [[1], [2], [3]], [[big], [1], [1]]) == [((1, 2, 3), 2**24)]
    assert found(oracle, [[1], [2], [3]], [[1], [1], [big]]) == [((1, 2, 3), 2**24 + 2)]


def test_scores_that_are_not_finite():
    oracle = Oracle([(1,), (1, 2)])
    huge = np.finfo(np.float32).max
    for sign in (1, -1):
        # The sum overflows: no result at step 2, the one of step 1 stays.
        assert found(oracle, [[1], [2]], [[sign * huge]] * 2) == [((1,), float(sign * huge))]
        # The pool score alone overflows at step 1: its beam lives on.
        end = [np.nan, sign * huge, 0]
        assert found(oracle, [[1], [2]], [[sign * huge], [0]], end_logprobs=end) == [
            ((1, 2), float(sign * huge))
        ]


def test_pool_score():
    zero, three = np.float32(0), np.float32(-3)
    assert pool_score(three, 2, None, 0.0) == -3
    assert pool_score(three, 2, np.array([0, 0, -1], np.float32), 1.0) == -2
    # Division can round to -0.0; adding +0.0 makes it +0.0.
    tiny = np.float32(-1e-45)
    assert pool_score(tiny, 4096, None, 1.0).tobytes() == zero.tobytes()
    assert penalty(3, 0.5) == np.float32(3**0.5)


def test_log_softmax_is_over_all_columns_and_proposals_over_the_vocabulary():
    half = np.log([0.5, 0.125, 0.25, 0.125])
    assert log_softmax(half).tolist() == pytest.approx(half)
    left = logit_proposals(half, vocab_size=2, count=5)
    assert [(p.position, p.token) for p in left] == [(0, 0), (1, 1)]
    assert left[0].logprob == np.float32(np.log(0.5))
    # Ties by lower token; -inf columns are no proposals.
    left = logit_proposals([0.0, 1.0, 1.0, -INF], vocab_size=9, count=2)
    assert [p.token for p in left] == [1, 2]
    assert [p.token for p in logit_proposals([0.0, -INF], 9, 5)] == [0]


@given(strategies.key_rows())
def test_key_ids_and_counts_are_consistent(rows):
    oracle = rows.oracle()
    assert sorted(set(rows.rows)) == sorted(oracle.keywords)
    assert [oracle.lookup(k) for k in oracle.keywords] == list(range(len(oracle)))
    counts = oracle.level_counts()
    assert sum(n - inner + terminals for n, inner, terminals, _, _ in counts) == len(oracle)
    # Each level but the last has inner nodes, and the last has none.
    assert [inner > 0 for _, inner, *_ in counts] == [True] * (len(counts) - 1) + [False]


@given(strategies.key_rows())
def test_an_unlimited_search_finds_every_keyword(rows):
    oracle = rows.oracle()
    steps = max(len(k) for k in oracle.keywords)
    tokens = [oracle.alphabet] * steps
    results = oracle.search(tokens, np.zeros((steps, len(oracle.alphabet))), beam_width=1000)
    assert {r.tokens for r in results} == set(oracle.keywords)
