"""Steps in two waves where blocks of a team give up their stages, some and not others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.conftest import assert_same

pytestmark = pytest.mark.gpu

# A stage that two kinds of B hits overfill; proposals are searched for, a few of them first.
CHANGES = {"THREADS": 64, "STAGE": 128, "GROUPS": 512, "WAVE_UNITS": 0, "FIRST_PROPOSALS": 2}
BEAM_WIDTH = 64


@pytest.fixture(scope="module")
def built(build_trie):
    """Nodes with far more children than proposals, and their keywords of two lengths."""
    rng = np.random.default_rng(0)
    heads = np.repeat(np.arange(40), 500)
    pairs = zip(heads.tolist(), rng.integers(0, 900, heads.size).tolist(), strict=True)
    rows: list[tuple[int, ...]] = sorted(set(pairs))
    with build_trie([*rows, *((*row, 7) for row in rows[::2])]) as trie:
        yield trie


@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("digits", [0, 1, 6])
def test_stages_that_are_given_up(built, group, digits):
    rng = np.random.default_rng(group)
    tokens = rng.permuted(np.tile(np.arange(900), (3, 3, 1)), axis=2)[:, :, :300]
    tokens[:, 0, :40] = rng.permuted(np.tile(np.arange(40), (3, 1)), axis=1)
    logprobs = -np.sort(rng.gamma(2.0, 2.0, tokens.shape), axis=2)
    logprobs = np.round(logprobs, digits).astype(np.float32)
    searcher = built.device.searcher
    searcher.changes, searcher.most_group = CHANGES, group
    try:
        expected = built.trie.search(tokens, logprobs, beam_width=BEAM_WIDTH)
        assert_same(built.search(tokens, logprobs, beam_width=BEAM_WIDTH), expected)
    finally:
        searcher.changes, searcher.most_group = {}, None
    assert len(expected.key_ids) == 3 * BEAM_WIDTH


@pytest.mark.parametrize("warp", [0, 1])
def test_a_cut_stage_leaves_the_next_unit_whole(build_trie, warp):
    """A warp that stopped in a unit which the cut then rules out begins the next one anew."""
    # Beams: one whose proposals are searched for, of which the same warp has the 32 that are there
    # and the unit of the last beam, which the hits of another one cut off while it is scanned. One
    # more beam, without hits, makes it the other warp.
    many = [(0, token) for token in range(1000, 5000)]
    few = [(1, token) for token in range(40)] + [(2, token) for token in range(128)]
    few += [(3, token) for token in range(7000, 7100)]
    tokens = np.full((1, 2, 200), -1, np.int64)
    tokens[0, 0, : 3 + warp] = [0, 1, 2, 3][: 3 + warp]
    tokens[0, 1] = np.r_[0:32, 1000:1032, 32:128, 6000:6040]
    logprobs = np.zeros((1, 2, 200), np.float32)
    logprobs[0, 0, 1:4] = [-3, -20, -1]
    logprobs[0, 1] = -np.linspace(0, 2, 200)
    with build_trie([*many, *few, (6000,)]) as trie:
        searcher = trie.device.searcher
        searcher.changes, searcher.most_group = CHANGES | {"WAVE_UNITS": 1 << 20}, 1
        expected = trie.trie.search(tokens, logprobs, beam_width=32)
        assert_same(trie.search(tokens, logprobs, beam_width=32), expected)
    assert set(expected.tokens[expected.token_offsets[:-1]].tolist()) == {0}
