"""What benchmarks hold our searches against: the paper's method, and the best of all keywords."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.kernels import precision
from benchmarks.paper_method import PaperMethod, measure_paper

from flashtrie.cpu.full_queries import Drawer, stack
from flashtrie.cpu.queries import QueryMaker

STEPS, TOP_K, COUNT = 5, 40, 8


@pytest.fixture(scope="module")
def searched(build_trie):
    """An open trie, and queries of it."""
    rng = np.random.default_rng(2)
    tokens = np.minimum(rng.zipf(1.4, (20_000, 6)), 300)
    lengths = rng.integers(1, 7, len(tokens))
    rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]
    with build_trie(rows) as trie:
        yield trie, stack(Drawer(QueryMaker(trie, STEPS, TOP_K, 0)).draw(0, COUNT))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beam_width", [1, 30, 2000])
def test_the_papers_method_gives_our_results(searched, threads, beam_width):
    trie, queries = searched
    method = PaperMethod(trie, STEPS, TOP_K, beam_width, threads)
    for i in range(COUNT):
        query = queries.part(i, i + 1).arrays()
        expected = trie.search(**query, beam_width=beam_width)
        found: Any = method.search(*(array[0] for array in query.values()))
        wanted: tuple[Any, ...] = (expected.key_ids, expected.scores, expected.tokens)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.tobytes() == theirs.tobytes()


def test_the_papers_method_is_timed(searched):
    trie, queries = searched
    rows = measure_paper(trie, queries, 20)
    assert {row["batch"] for row in rows} == {1, 8}
    assert all(row["mean_ms"] > 0 and row["cores"] >= 1 for row in rows)


def test_the_best_of_all_keywords(searched, monkeypatch):
    """A beam that drops nothing finds them, too."""
    trie, queries = searched
    monkeypatch.setattr(precision, "_CHUNK", 1000)
    best = precision.scores_of_best(trie, queries)
    found = trie.search(**queries.arrays(), beam_width=65_536)
    for i, scores in enumerate(best):
        first = found.scores[found.offsets[i] : found.offsets[i + 1]][: precision.BEST]
        assert len(first) == precision.BEST
        assert scores.tobytes() == first.tobytes()


def test_precision_rises_with_the_beam(searched):
    trie, queries = searched
    made = precision.curve(trie, trie, queries, beam_widths=[1, 20, 65_536])
    shares = [row["precision"] for row in made["rows"]]
    assert shares == sorted(shares) and shares[0] < 0.5 and shares[-1] == 1
