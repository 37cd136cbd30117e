"""What a Trie does beside lookups and searches: other key ids, closing, a file that changes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import flashtrie
from flashtrie.formats.errors import ArtifactChanged, UsageError
from tests.conftest import write_parquet

ROWS = [(1,), (1, 2), (1, 2, 3), (1, 2, 4, 5), (1, 7, 8, 9, 9), (2, 7, 8, 9, 9), (3,)]


@pytest.fixture(params=["implicit", "indexed"])
def trie(build_trie, request):
    with build_trie(ROWS, tails=request.param) as trie:
        yield trie


def test_keywords_of_any_key_ids(trie):
    rng = np.random.default_rng(0)
    key_ids = rng.integers(0, len(trie), 50)
    tokens, offsets = trie.keywords_of(key_ids)
    for i, key_id in enumerate(key_ids.tolist()):
        keyword = tokens[offsets[i] : offsets[i + 1]]
        assert keyword.tolist() == trie.keyword(key_id).tolist()
    assert trie.keywords_of(np.zeros(0, np.int64))[1].tolist() == [0]
    with pytest.raises(IndexError):
        trie.keywords_of(np.array([0, len(trie)]))


def test_keywords_longer_than_guessed(build_trie):
    rows = [tuple(range(i, i + 300)) for i in range(100)]
    with build_trie(rows) as trie:
        assert {tuple(k.tolist()) for k in trie} == set(rows)
        tokens, offsets = trie.keywords(10, 90)
        assert np.diff(offsets).tolist() == [300] * 80
        assert len(tokens) == 300 * 80


def test_ranges_of_keywords_that_share_a_prefix(trie):
    for key_id, keyword in enumerate(trie):
        starts, stops = trie.sharing_ranges(key_id)
        for prefix, (start, stop) in enumerate(zip(starts, stops, strict=True), 1):
            shared = {i for a, b in zip(start, stop, strict=True) for i in range(a, b)}
            expected = {
                i for i, k in enumerate(trie) if k[:prefix].tolist() == keyword[:prefix].tolist()
            }
            assert shared == expected
        # The next prefix is its own.
        longer = keyword[: len(starts) + 1].tolist()
        assert sum(k[: len(longer)].tolist() == longer for k in trie) == 1 or len(starts) == len(
            keyword
        )


def test_one_trie_from_many_threads(trie):
    tokens = np.array([[[1, 2, 3], [2, 7, 9], [3, 4, 8]]])
    logprobs = np.array([[[-1, -2, -3], [-1, -2, -3], [-1, -2, -3]]], np.float32)

    def use(i):
        found = trie.search(tokens, logprobs, beam_width=1 + i % 3, threads=1 + i % 2)
        return trie.lookup(ROWS).tolist(), found.key_ids.tolist()

    expected = [use(i) for i in range(6)]
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(use, range(240))) == expected * 40


@pytest.mark.parametrize(
    "offsets", [[], [-1, 2], [0, 3], [0, 2, 1], [2, 1]], ids=lambda offsets: str(offsets)
)
def test_offsets_that_are_refused(trie, offsets):
    with pytest.raises(UsageError):
        trie.lookup_flat(np.array([1, 2], np.uint32), np.array(offsets, np.int64))


def test_a_closed_trie_is_refused(trie):
    trie.close()
    for call in (lambda: trie.lookup([(1,)]), lambda: trie.keyword(0), lambda: trie.values([0])):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_file_that_changes_while_open(tmp_path):
    """19: each call says that it was cut or written to; after a rename the old one goes on."""
    source = write_parquet(tmp_path / "rows.parquet", ROWS)
    path = tmp_path / "out.trie"
    flashtrie.build([source], path)
    calls = [
        lambda trie: trie.lookup([(1,)]),
        lambda trie: trie.keyword(0),
        lambda trie: trie.keywords(0, 2),
        lambda trie: trie.keywords_of(np.array([0])),
        lambda trie: trie.sharing_ranges(0),
        lambda trie: trie.values(np.array([0])),
        lambda trie: trie.search(np.zeros((1, 1, 1), int), np.zeros((1, 1, 1), np.float32)),
        lambda trie: trie.search_logits(np.zeros((1, 1, 4), np.float32)),
        lambda trie: list(trie),
    ]
    with flashtrie.open(path) as trie:
        flashtrie.build([source], path, force=True)
        for call in calls:
            call(trie)
    with flashtrie.open(path) as trie:
        os.truncate(path, path.stat().st_size - 64)
        for call in calls:
            with pytest.raises(ArtifactChanged):
                call(trie)
