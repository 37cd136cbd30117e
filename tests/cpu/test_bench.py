"""Benchmark queries and the search benchmark, on small artifacts."""

from __future__ import annotations

import numpy as np
import pytest

from flashtrie.cpu import bench as library
from flashtrie.cpu import full_queries
from flashtrie.cpu.bench import bench
from flashtrie.cpu.full_queries import Drawer
from flashtrie.cpu.queries import QueryMaker
from flashtrie.formats.errors import UsageError
from flashtrie.formats.search import ABSENT

STEPS, TOP_K = 4, 30


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    tokens = np.minimum(rng.zipf(1.4, (20_000, 6)), 300)
    lengths = rng.integers(1, 7, len(tokens))
    return [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]


@pytest.fixture
def trie(build_trie, rows):
    with build_trie(rows) as trie:
        yield trie


def test_a_query_is_a_function_of_seed_and_number(trie):
    first = QueryMaker(trie, STEPS, TOP_K, seed=5)
    again, other = QueryMaker(trie, STEPS, TOP_K, seed=5), QueryMaker(trie, STEPS, TOP_K, seed=6)
    first.draw(0)
    for ours, same in zip(first.draw(3), again.draw(3), strict=True):
        assert ours.tobytes() == same.tobytes()
    assert first.draw(3).tokens.tobytes() != first.draw(4).tokens.tobytes()
    assert first.draw(3).tokens.tobytes() != other.draw(3).tokens.tobytes()


def test_a_query_is_what_a_model_may_propose(trie, rows):
    alphabet = {token for row in rows for token in row}
    for number in range(5):
        query = QueryMaker(trie, STEPS, TOP_K, seed=0).draw(number)
        assert query.tokens.shape == query.logprobs.shape == (STEPS, TOP_K)
        assert (np.diff(query.logprobs, axis=1) <= 0).all()
        assert (np.exp(query.logprobs.astype(float)).sum(axis=1) <= 1 + 1e-6).all()
        for step in query.tokens.tolist():
            assert set(step) <= alphabet and len(set(step)) == TOP_K
        # Some keyword of each length is found: it is in the neighbourhood.
        assert np.isfinite(query.end_logprobs[1:]).any()


def test_fewer_tokens_than_proposals(build_trie):
    with build_trie([(1, 2), (1, 3), (2,)]) as trie:
        query = QueryMaker(trie, 3, 5, seed=0).draw(0)
        assert (query.tokens[:, 3:] == ABSENT).all()
        assert sorted(query.tokens[0, :3].tolist()) == [1, 2, 3]
        result = trie.search(query.tokens[None], query.logprobs[None])
        assert len(result.key_ids) == 3


def test_rows(trie):
    rows, queries = bench(
        trie,
        beam_widths=[2, 5],
        batches=[1, 4],
        top_k=TOP_K,
        steps=STEPS,
        queries=10,
        against=trie,
    )
    assert [(row.bw, row.batch, row.queries) for row in rows] == [
        (2, 1, 10), (2, 4, 12), (5, 1, 10), (5, 4, 12)
    ]  # fmt: skip
    assert len(queries) == 10
    for row in rows:
        assert row.drawn >= 10 and row.stopped_by == "queries"
        assert row.p50_ms <= row.p95_ms <= row.p99_ms
        assert row.queries_per_second == pytest.approx(row.batch / row.mean_ms * 1e3)
        assert len(row.active_beams) == len(row.candidates) == STEPS
        # Full are steps 2 and 3.
        assert row.active_beams[1:3] == [row.bw, row.bw]
        assert row.equal and row.speedup is not None and row.speedup > 0
        assert row.as_json()["equal"] is True
    result = trie.search(
        queries.tokens, queries.logprobs, end_logprobs=queries.end_logprobs, beam_width=5
    )
    assert (np.diff(result.offsets) == 5).all()


def test_without_another_engine_nothing_is_compared(trie):
    rows, _ = bench(trie, beam_widths=[2], batches=[1], top_k=TOP_K, steps=STEPS, queries=3)
    assert not {"speedup", "equal"} & rows[0].as_json().keys()


@pytest.mark.parametrize("beam_width", [5000, 60_000])
def test_an_artifact_that_is_too_small(trie, beam_width):
    with pytest.raises(UsageError, match="too small for beam width"):
        bench(trie, beam_widths=[beam_width], batches=[1], top_k=TOP_K, steps=STEPS, queries=3)


def test_time_ends_a_row(trie, monkeypatch):
    monkeypatch.setattr(library, "SECONDS", 0.0)
    monkeypatch.setattr(full_queries, "SECONDS", 0.0)
    rows, _ = bench(trie, beam_widths=[2], batches=[1], top_k=TOP_K, steps=STEPS, queries=500)
    assert rows[0].stopped_by == "time"
    assert rows[0].queries < rows[0].drawn <= 8


def test_an_unequal_engine_is_seen(trie):
    class Other:
        def search(self, tokens, logprobs, **options):
            return trie.search(tokens, logprobs - 1, **options)

    rows, _ = bench(
        trie, beam_widths=[2], batches=[1], top_k=TOP_K, steps=STEPS, queries=2, against=Other()
    )
    assert rows[0].equal is False


def test_queries_are_drawn_once(trie):
    drawn = []

    class Maker(QueryMaker):
        def draw(self, index):
            drawn.append(index)
            return super().draw(index)

    drawer = Drawer(Maker(trie, STEPS, TOP_K, seed=0))
    first = drawer.draw(0, 6)
    again = drawer.draw(2, 6)
    assert sorted(drawn) == list(range(8))
    assert [q.tokens.tobytes() for q in again[:4]] == [q.tokens.tobytes() for q in first[2:]]
    assert again[5].tokens.tobytes() == QueryMaker(trie, STEPS, TOP_K, 0).draw(7).tokens.tobytes()


def test_fewer_different_queries_take_turns(trie):
    (row,), queries = bench(
        trie,
        beam_widths=[2],
        batches=[2],
        top_k=TOP_K,
        steps=STEPS,
        queries=30,
        different=4,
    )
    assert row.queries == 30 and len(queries) == 4


def test_what_a_search_reads(trie):
    class Traffic:
        sectors_per_second = 1e9

        def bytes_touched(self, parts, beam_width):
            return 3200.0 * len(parts[0]) * beam_width

    rows, _ = bench(
        trie,
        beam_widths=[2],
        batches=[1, 4],
        top_k=TOP_K,
        steps=STEPS,
        queries=4,
        traffic=Traffic(),
    )
    for row in rows:
        assert row.bytes_touched == 6400 * row.batch
        assert row.random_access_share == pytest.approx(200 * row.batch / row.mean_ms / 1e6)
