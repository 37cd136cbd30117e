"""Searches and lookups worked by hand: exact key ids and scores, and every input that is refused.

Numbers in names are those of the classes of faults that the cases stand for.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flashtrie import FlashTrieError, SearchResult, Trie, UsageError
from tests.oracle import Keyword
from tests.strategies import TAILS

INF = np.inf


@pytest.fixture(params=TAILS)
def tails(request):
    return request.param


def search(
    trie: Trie,
    tokens: Any,
    logprobs: Any,
    *,
    beam_width: int = 10,
    end_logprobs: Any = None,
    **options: Any,
) -> list[tuple[Keyword, float]]:
    """One query as (tokens, score) pairs, best first."""
    end = None if end_logprobs is None else np.array([end_logprobs], np.float32)
    result = trie.search(
        np.array([tokens], np.int64),
        np.array([logprobs], np.float32),
        beam_width=beam_width,
        end_logprobs=end,
        **options,
    )
    assert result.offsets.tolist() == [0, len(result.key_ids)]
    assert trie.lookup(found_tokens(result)).tolist() == result.key_ids.tolist()
    return list(zip(found_tokens(result), result.scores.tolist(), strict=True))


def found_tokens(result: SearchResult) -> list[Keyword]:
    bounds = result.token_offsets.tolist()
    assert np.diff(bounds).tolist() == result.lengths.tolist()
    return [tuple(result.tokens[a:b].tolist()) for a, b in zip(bounds, bounds[1:], strict=False)]


# Lookup


def test_15_prefixes_that_are_keywords_and_prefixes_that_are_not(build_trie, tails):
    with build_trie([(1,), (1, 2), (1, 2, 3)], tails=tails) as trie:
        assert trie.lookup([(1,), (1, 2), (1, 2, 3)]).tolist() == [0, 1, 2]
        assert trie.lookup([(2,), (1, 2, 3, 4), (3,), ()]).tolist() == [-1] * 4
    with build_trie([(1, 2, 3)], tails=tails) as trie:
        assert trie.lookup([(1, 2), (1,), (1, 2, 3), (1, 2, 3, 3)]).tolist() == [-1, -1, 0, -1]
    with build_trie([(1, 2, 3), (1, 4)], tails=tails) as trie:
        assert trie.lookup([(1, 2), (1,), (1, 4), (1, 2, 3)]).tolist() == [-1, -1, 1, 0]


def test_18_token_0(build_trie, tails):
    rows = [(0,), (0, 0), (0, 0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 0, 0, 0, 0), (2, 1, 0)]
    with build_trie(rows, tails=tails) as trie:
        # Zeros are the most frequent: level 1 is 0 and the leaf 2 (1 is no keyword), level 2 is
        # [0,0] and the leaf [0,1], and so on.
        ids = dict(zip(rows, [0, 2, 4, 3, 5, 6, 1], strict=True))
        assert trie.lookup(rows).tolist() == list(ids.values())
        absent = [(0, 0, 0), (1,), (1, 0), (0, 1), (0, 1, 0, 0), (1, 0, 0, 0), (2, 1)]
        assert trie.lookup(absent).tolist() == [-1] * 7
        assert [tuple(k.tolist()) for k in trie] == sorted(rows, key=ids.__getitem__)
        found = search(trie, [[0, 1, 2]] * 5, [[0, 0, 0]] * 5, beam_width=100)
        assert sorted(tokens for tokens, _ in found) == sorted(rows)


def test_key_ids_of_a_small_set(build_trie, tails):
    """Occurrences: 9 three times, 5 and 8 twice, 1 and 2 once. Leaves: 5; [9,1], [8,9], [8,5]."""
    rows = [(8, 9), (8, 5), (9, 1, 2), (5,), (9,)]
    with build_trie(rows, [10, 20, 30, 40, 50], tails=tails) as trie:
        assert [tuple(k.tolist()) for k in trie] == [(9,), (5,), (9, 1, 2), (8, 9), (8, 5)]
        assert trie.values(np.arange(5)).tolist() == [50, 40, 30, 10, 20]


def test_duplicates_count_for_ranks(build_trie):
    rows = [(7,), (3,), (9,), (9,)]
    with build_trie(rows) as trie:
        assert [k.tolist() for k in trie] == [[9], [3], [7]]


# Search: what comes out


def test_a_worked_search(build_trie, tails):
    rows = [(1, 2), (1, 2, 3), (1, 4), (5, 4)]
    # 1, 2 and 4: ids (1,2) 0, (1,4) 1 by level 2 ranks 2 < 4; 5 is a leaf of level 1: id 0.
    with build_trie(rows, [12, 123, 14, 54], tails=tails) as trie:
        assert [tuple(k.tolist()) for k in trie] == [(5, 4), (1, 2), (1, 4), (1, 2, 3)]
        result = trie.search(
            np.array([[[5, 1], [4, 2], [3, 9]]], np.uint32),
            np.array([[[-0.5, -1], [-1, -0.25], [-0.5, 0]]], np.float32),
            beam_width=3,
        )
        assert found_tokens(result) == [(1, 2), (5, 4), (1, 2, 3)]
        assert result.scores.tolist() == [-1.25, -1.5, -1.75]
        assert result.key_ids.tolist() == [1, 0, 3]
        assert result.values.tolist() == [12, 54, 123]
        assert result.lengths.tolist() == [2, 2, 3]
        dtypes = {name: getattr(result, name).dtype for name in ("offsets", "key_ids", "scores")}
        assert dtypes == {"offsets": np.int64, "key_ids": np.int64, "scores": np.float32}


def test_without_values_there_are_none(build_trie):
    with build_trie([(1,)]) as trie:
        found = trie.search(np.ones((1, 1, 1), np.int64), np.zeros((1, 1, 1), np.float32))
        assert found.values is None
        assert found.key_ids.tolist() == [0]
        assert trie.value(0) is None


def test_28_a_beam_wider_than_the_key_set(build_trie, tails):
    rows = [(1,), (1, 2), (3,)]
    with build_trie(rows, tails=tails) as trie:
        found = search(trie, [[3, 1, 2], [2, 3, 1]], [[0, 0, 0], [-1, 0, 0]], beam_width=65_536)
        assert found == [((3,), 0), ((1,), 0), ((1, 2), -1)]


@pytest.mark.parametrize("token", [-1, 3, 4, 2**32 - 1, 2**32, 2**32 + 1, -(2**32) + 1, 2**63 - 1])
def test_29_proposals_out_of_vocabulary(build_trie, token):
    with build_trie([(1, 2)]) as trie:
        for logprob in (0, -INF, INF, np.nan):
            assert search(trie, [[token], [token]], [[logprob]] * 2) == []
            # Beside one that is in the vocabulary.
            found = search(trie, [[token, 1], [2, token]], [[logprob, -1], [-2, logprob]])
            assert found == [((1, 2), -3)]


def test_29_tokens_of_the_vocabulary_that_no_keyword_has(build_trie):
    with build_trie([(1, 3)]) as trie:
        assert search(trie, [[0, 2], [2, 0]], [[0, 0]] * 2) == []


def test_29_one_proposal_and_no_proposal(build_trie, tails):
    with build_trie([(1, 2, 3), (1, 2)], tails=tails) as trie:
        assert search(trie, [[1], [2], [3]], [[-1]] * 3) == [((1, 2), -2), ((1, 2, 3), -3)]
        assert search(trie, [[1], [2], [3]], [[-1], [-INF], [-1]]) == []
        assert search(trie, [[1], [2], [3]], [[-1], [-1], [-INF]]) == [((1, 2), -2)]


def test_29_more_steps_than_tokens_and_fewer(build_trie, tails):
    with build_trie([(1,), (1, 2), (1, 2, 3, 4, 5)], tails=tails) as trie:
        tokens = [[i] for i in range(1, 10)]
        assert [len(t) for t, _ in search(trie, tokens, [[-1]] * 9)] == [1, 2, 5]
        assert [len(t) for t, _ in search(trie, tokens[:4], [[-1]] * 4)] == [1, 2]
        assert [len(t) for t, _ in search(trie, tokens[:1], [[-1]])] == [1]


def test_29_equal_scores_come_by_step_beam_and_proposal(build_trie, tails):
    rows = [(1,), (3,), (1, 2), (1, 3), (2, 2), (2, 3), (3, 1)]
    with build_trie(rows, tails=tails) as trie:
        tokens = [[2, 3, 1], [3, 2, 1]]
        expected = [(3,), (1,), (2, 3), (2, 2), (3, 1), (1, 3), (1, 2)]
        for beam_width in (3, 4, 7, 100):
            found = search(trie, tokens, [[0, 0, 0]] * 2, beam_width=beam_width)
            assert found == [(tokens, 0) for tokens in expected[:beam_width]]
        # With two beams [1] is cut off: it is the third in order.
        found = search(trie, tokens, [[0, 0, 0]] * 2, beam_width=2, end_logprobs=[0, -1, 0])
        assert found == [((2, 3), 0), ((2, 2), 0)]


def test_30_equal_position_and_previous_token_do_not_mix(build_trie, tails):
    for rows in ([(1, 5, 7), (2, 5, 8)], [(1, 5, 7), (1, 5, 9), (2, 5, 8), (2, 5, 6)]):
        with build_trie(rows, tails=tails) as trie:
            found = search(trie, [[1, 2], [5, 5], [7, 8]], [[0, -1], [0, 0], [0, 0]])
            assert found == [((1, 5, 7), 0), ((2, 5, 8), -1)]
            assert trie.lookup([(1, 5, 8), (2, 5, 7)]).tolist() == [-1, -1]


def test_repeats_count_once_at_their_first_position_that_is_left(build_trie):
    with build_trie([(1,), (2,)]) as trie:
        assert search(trie, [[1, 1, 2]], [[-5, 0, -5]]) == [((1,), -5), ((2,), -5)]
        # The first 1 has no probability and is dropped before repeats are: the second counts, and
        # stands behind 2.
        assert search(trie, [[1, 2, 1]], [[-INF, -5, -5]]) == [((2,), -5), ((1,), -5)]


def test_top_k_counts_tokens_that_no_keyword_has(build_trie):
    with build_trie([(1,), (2,), (5,)]) as trie:
        tokens, logprobs = [[1, 3, 2, 4, 5]], [[-2, -1, -2, -1, -2]]
        assert search(trie, tokens, logprobs, top_k=2) == []
        assert search(trie, tokens, logprobs, top_k=3) == [((1,), -2)]
        assert search(trie, tokens, logprobs, top_k=4) == [((1,), -2), ((2,), -2)]
        assert len(search(trie, tokens, logprobs, top_k=100)) == 3


def test_top_k_counts_neither_absent_nor_impossible_nor_repeated_ones(build_trie):
    with build_trie([(1,), (2,)]) as trie:
        tokens, logprobs = [[-1, 9, 2, 2, 1, 1]], [[0, 0, -INF, -3, -4, 5]]
        assert search(trie, tokens, logprobs, top_k=1) == [((2,), -3)]
        assert search(trie, tokens, logprobs, top_k=2) == [((2,), -3), ((1,), -4)]


def test_positions_stay_those_of_the_input_under_top_k(build_trie, tails):
    """Unequal log-probabilities whose float32 sums are equal: the lower position comes first."""
    rows = [(1, 2), (1, 3), (1, 4)]
    with build_trie(rows, tails=tails) as trie:
        tokens, logprobs = [[1, 9, 9], [4, 2, 3]], [[2**24, 0, 0], [0, -9, 1]]
        for top_k in (None, 2, 3):
            found = search(trie, tokens, logprobs, top_k=top_k, beam_width=2)
            assert found == [((1, 4), 2**24), ((1, 3), 2**24)]


def test_end_log_probabilities(build_trie, tails):
    with build_trie([(1,), (1, 2), (1, 2, 3)], tails=tails) as trie:
        tokens, logprobs = [[1], [2], [3]], [[-1], [-1], [-1]]
        found = search(trie, tokens, logprobs, end_logprobs=[INF, -0.5, -4, 1])
        assert found == [((1,), -1.5), ((1, 2, 3), -2), ((1, 2), -6)]
        # -inf forbids to end there, and the beam goes on; end[0] is not read.
        found = search(trie, tokens, logprobs, end_logprobs=[np.nan, -INF, -INF, 0])
        assert found == [((1, 2, 3), -3)]
        assert search(trie, tokens, logprobs, end_logprobs=[0] + [-INF] * 3) == []


def test_length_penalty(build_trie):
    with build_trie([(1,), (1, 2), (1, 2, 3)]) as trie:
        tokens, logprobs, end = [[1], [2], [3]], [[-1], [-0.5], [-1]], [0, 0, 0, -1]
        found = search(trie, tokens, logprobs, length_penalty=1, end_logprobs=end)
        assert found == [
            ((1, 2), -0.75), ((1,), -1), ((1, 2, 3), float(np.float32(-3.5) / np.float32(3)))
        ]  # fmt: skip
        found = search(trie, tokens, logprobs, length_penalty=-1, end_logprobs=end)
        third = np.float32(np.float64(3) ** -1)
        assert found == [((1,), -1), ((1, 2), -3), ((1, 2, 3), float(np.float32(-3.5) / third))]


def test_a_pool_score_of_minus_zero_is_zero(build_trie):
    tiny = float(np.float32(-1e-45))
    with build_trie([(1, 2), (1,)]) as trie:
        found = search(trie, [[1], [2]], [[tiny], [-0.0]], length_penalty=2)
        assert [(tokens, str(score)) for tokens, score in found] == [
            ((1,), str(tiny)), ((1, 2), "0.0")
        ][::-1]  # fmt: skip
        assert str(search(trie, [[1]], [[-0.0]])[0][1]) == "0.0"


def test_sums_are_float32_in_step_order(build_trie, tails):
    with build_trie([(1, 2, 3)], tails=tails) as trie:
        assert search(trie, [[1], [2], [3]], [[2**24], [1], [1]]) == [((1, 2, 3), 2**24)]
        assert search(trie, [[1], [2], [3]], [[1], [1], [2**24]]) == [((1, 2, 3), 2**24 + 2)]


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_overflow_are_dropped(build_trie, tails, sign):
    huge = float(np.finfo(np.float32).max) * sign
    with build_trie([(1,), (1, 2), (1, 2, 3)], tails=tails) as trie:
        assert search(trie, [[1], [2], [3]], [[huge], [huge], [0]]) == [((1,), huge)]
        # A pool score alone that overflows leaves the beam.
        found = search(trie, [[1], [2]], [[huge], [0]], end_logprobs=[0, huge, 0])
        assert found == [((1, 2), huge)]


def test_a_sum_that_overflows_takes_no_beam(build_trie, tails):
    huge = float(np.finfo(np.float32).max)
    with build_trie([(1, 2, 3), (1, 5, 6)], tails=tails) as trie:
        tokens, logprobs = [[1, 9], [2, 5], [3, 6]], [[huge, 0], [huge, 0], [0, 0]]
        assert search(trie, tokens, logprobs, beam_width=1) == [((1, 5, 6), huge)]


def test_a_result_takes_no_beam_from_a_prefix(build_trie, tails):
    with build_trie([(5,), (4,), (6, 7)], tails=tails) as trie:
        found = search(trie, [[5, 4, 6], [7, 7, 7]], [[0, 0, -1], [0, 0, 0]], beam_width=1)
        assert found == [((5,), 0)]
        found = search(trie, [[5, 4, 6], [7, 7, 7]], [[-3, -3, -9], [2, 0, 7]], beam_width=2)
        assert found == [((5,), -3), ((4,), -3)]
        for beam_width in (1, 2, 3):
            found = search(
                trie, [[5, 4, 6], [7, 7, 7]], [[0, 0, -1], [0, 0, 0]],
                beam_width=beam_width, end_logprobs=[0, -INF, 0],
            )  # fmt: skip
            assert found == [((6, 7), -1)]


def test_beams_in_tails_and_in_the_trie_compete(build_trie, tails):
    """[8,...] is in its tail from step 1 on; [1,...] stays in the trie."""
    rows = [(8, 1, 2, 3), (1, 1, 2), (1, 1, 3)]
    tokens = [[8, 1], [1, 1], [2, 3], [3, 2]]
    with build_trie(rows, tails=tails) as trie:
        logprobs = [[0, -1], [0, 0], [0, 0], [0, 0]]
        assert search(trie, tokens, logprobs, beam_width=1) == [((8, 1, 2, 3), 0)]
        expected = [((8, 1, 2, 3), 0), ((1, 1, 2), -1), ((1, 1, 3), -1)]
        assert search(trie, tokens, logprobs, beam_width=3) == expected
        logprobs[0] = [-2, -1]
        assert search(trie, tokens, logprobs, beam_width=1) == [((1, 1, 2), -1)]


def test_31_the_widest_beam_and_proposals(build_trie):
    width = 65_536
    rows = [(t,) for t in range(width)] + [(t, 0) for t in range(0, width, 2)]
    tokens = np.tile(np.arange(width), (1, 2, 1))
    with build_trie(rows) as trie:
        result = trie.search(tokens, np.zeros((1, 2, width), np.float32), beam_width=width)
        # Equal scores: the pool is full with step 1.
        assert found_tokens(result) == rows[:width]
        end = np.array([[0, -1, 0]], np.float32)
        logprobs = np.zeros((1, 2, width), np.float32)
        result = trie.search(tokens, logprobs, beam_width=width, end_logprobs=end)
        assert found_tokens(result) == rows[width:] + rows[: width // 2]


def test_no_queries(build_trie):
    with build_trie([(1,)]) as trie:
        result = trie.search(np.zeros((0, 2, 3), np.int64), np.zeros((0, 2, 3), np.float32))
        assert result.offsets.tolist() == [0]
        assert len(result.key_ids) == len(result.tokens) == 0


# Search: what is refused


def batch(
    q: int = 3, t: int = 4, k: int = 5
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    return np.ones((q, t, k), np.int64), np.zeros((q, t, k), np.float32)


def assert_names(error: Exception, **places: int) -> None:
    """The message has each word followed by its number; steps may be counted from 0 or from 1."""
    message = str(error)
    for word, number in places.items():
        accepted = [number, number + 1] if word == "step" else [number]
        named = [int(n) for n in re.findall(rf"{word}\D{{0,5}}(\d+)", message)]
        assert any(n in accepted for n in named), f"{word} {number} is not in: {message}"


def test_29_a_score_that_overflows_does_not_hide_those_that_do_not(build_trie):
    rows = [(1,), (2,), (3, 4), (3, 5), (1, 4), (2, 5), (6,)]
    tokens = [[1, 2, 3, 6], [4, 5, 4, 5]]
    with build_trie(rows) as trie:
        # (1,) has 6e38 in the pool, which no float32 is; (2,) and (6,) have 3e38.
        steps = [[3e38, 1, 0.5, -1], [-3e38] * 4]
        found = search(trie, tokens, steps, end_logprobs=[0, 3e38, 0])
        assert [keyword for keyword, _ in found[:3]] == [(2,), (6,), (1, 4)]
        assert found[2][1] == 0
        assert sorted(keyword for keyword, _ in found[3:]) == [(2, 5), (3, 4), (3, 5)]
        one = search(trie, tokens, steps, end_logprobs=[0, 3e38, 0], beam_width=1)
        assert [keyword for keyword, _ in one] == [(2,)]
        # Here it is (1, 4).
        steps = [[3e38, 1, 0.5, -1], [3e38, 1e38, 3e38, 1e38]]
        best = [(3, 4), (2, 5), (3, 5)]
        for beam_width, expected in (
            (2, [(2, 5), (1,)]),
            (3, best),
            (10, [*best, (1,), (2,), (6,)]),
        ):
            ends = [0, -3e38, 0]
            found = search(trie, tokens, steps, end_logprobs=ends, beam_width=beam_width)
            assert [keyword for keyword, _ in found] == expected


@pytest.mark.parametrize("bad", [np.nan, INF])
@pytest.mark.parametrize("token", [1, 0])
def test_29_nan_and_infinity_are_refused(build_trie, bad, token):
    """On a token that is only in the vocabulary too, and at steps that no beam reaches."""
    with build_trie([(1, 2)]) as trie:
        tokens, logprobs = batch()
        tokens[2, 3, 4] = token
        logprobs[2, 3, 4] = bad
        with pytest.raises(FlashTrieError) as error:
            trie.search(tokens, logprobs)
        assert_names(error.value, query=2, step=3, position=4)


def test_29_the_first_bad_one_is_named(build_trie):
    with build_trie([(1, 2)]) as trie:
        tokens, logprobs = batch()
        tokens[0, 0, 0], logprobs[0, 0, 0] = -1, np.nan
        logprobs[1, 2, 3], logprobs[2, 0, 0] = INF, np.nan
        for threads in (1, 2, 3):
            with pytest.raises(FlashTrieError) as error:
                trie.search(tokens, logprobs, threads=threads)
            assert_names(error.value, query=1, step=2, position=3)


@pytest.mark.parametrize("bad", [np.nan, INF])
def test_29_end_log_probabilities_that_are_refused(build_trie, bad):
    with build_trie([(1, 2)]) as trie:
        end = np.zeros((3, 5), np.float32)
        end[:, 0] = bad
        trie.search(*batch(), end_logprobs=end)
        end[1, 4] = bad
        with pytest.raises(FlashTrieError) as error:
            trie.search(*batch(), end_logprobs=end)
        assert_names(error.value, query=1)
        assert "4" in str(error.value)


@pytest.mark.parametrize("penalty", [np.nan, INF, -INF, 1000.0, -1000.0, 70.0, -80.0])
def test_length_penalties_that_are_refused(build_trie, penalty):
    """Not finite, and those with which 4^a overflows or becomes zero in float32."""
    with build_trie([(1, 2)]) as trie, pytest.raises(UsageError):
        trie.search(*batch(), length_penalty=penalty)


def test_a_length_penalty_is_judged_by_the_steps_there_are(build_trie):
    with build_trie([(1, 2)]) as trie:
        trie.search(*batch(t=1), length_penalty=1000.0)
        trie.search(*batch(t=4), length_penalty=60.0)


@pytest.mark.parametrize("beam_width", [0, -1, 65_537])
def test_beam_widths_that_are_refused(build_trie, beam_width):
    with build_trie([(1, 2)]) as trie, pytest.raises(UsageError):
        trie.search(*batch(), beam_width=beam_width)


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_that_is_refused(build_trie, top_k):
    with build_trie([(1, 2)]) as trie, pytest.raises(UsageError):
        trie.search(*batch(), top_k=top_k)


def describe(change: dict[str, npt.NDArray[Any]]) -> str:
    return " ".join(f"{name} {array.dtype} {array.shape}" for name, array in change.items())


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": np.zeros((3, 4), np.int64)},
        {"tokens": np.zeros((3, 4, 6), np.int64)},
        {"tokens": np.zeros((2, 4, 5), np.int64)},
        {"tokens": np.zeros((3, 4, 5), np.float32)},
        {"tokens": np.zeros((3, 4, 5), np.bool_)},
        {"logprobs": np.zeros((4, 5), np.float32)},
        {"logprobs": np.zeros((3, 4, 5), np.int64)},
        {"end_logprobs": np.zeros((3, 4), np.float32)},
        {"end_logprobs": np.zeros((2, 5), np.float32)},
        {"end_logprobs": np.zeros(5, np.float32)},
        {"tokens": np.zeros((1, 4097, 1), np.int8), "logprobs": np.zeros((1, 4097, 1), np.float32)},
        {
            "tokens": np.zeros((1, 1, 65_537), np.int8),
            "logprobs": np.zeros((1, 1, 65_537), np.float32),
        },
    ],
    ids=describe,
)
def test_shapes_and_dtypes_that_are_refused(build_trie, change):
    tokens, logprobs = batch()
    arguments = {"tokens": tokens, "logprobs": logprobs} | change
    with build_trie([(1, 2)]) as trie, pytest.raises(FlashTrieError):
        trie.search(**arguments)


@pytest.mark.parametrize("bad", [np.nan, INF])
def test_logits_that_are_refused(build_trie, bad):
    with build_trie([(1, 2)]) as trie:
        logits = np.zeros((2, 3, 8), np.float32)
        logits[1, 2, 7] = bad
        with pytest.raises(FlashTrieError) as error:
            trie.search_logits(logits)
        assert_names(error.value, query=1, step=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint64])
def test_any_integer_dtype(build_trie, dtype):
    with build_trie([(1, 2), (1, 3)]) as trie:
        largest = np.iinfo(dtype).max
        tokens = np.array([[[1, largest], [largest, 3]]], dtype)
        result = trie.search(tokens, np.zeros((1, 2, 2), np.float32))
        assert found_tokens(result) == [(1, 3)]


def test_arrays_that_are_not_contiguous(build_trie):
    with build_trie([(1, 2), (3, 2)]) as trie:
        tokens = np.array([[[1, 9, 3, 9], [2, 9, 2, 9]]], np.int64)[:, :, ::2]
        logprobs = np.asfortranarray(np.array([[[-1, -2], [0, 0]]], np.float32))
        result = trie.search(tokens, logprobs)
        assert found_tokens(result) == [(1, 2), (3, 2)]
        assert result.scores.tolist() == [-1, -2]
