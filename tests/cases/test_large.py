"""Cases 7 and 31: more than 2^31 tokens in one row group, 10^7 children of one node.

What takes longer than some seconds is marked large: `make test-large`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flashtrie
from tests.cases.conftest import run, write_matrix

ROWS, LENGTH = 1 << 16, 64
WIDTH = 1 << 16


@pytest.mark.parametrize("children", [500_000, pytest.param(10_000_000, marks=pytest.mark.large)])
def test_31_a_wide_node_and_the_widest_search(tmp_path, children):
    """One node has all the children, the beam and the proposals are as wide as they can be."""
    tokens = np.zeros((children, 2), np.uint32)
    tokens[:, 1] = np.arange(children)
    source = write_matrix(tmp_path / "keywords.parquet", tokens)
    flashtrie.build([source], tmp_path / "out.trie")
    rng = np.random.default_rng(0)
    proposed = np.full((1, 2, WIDTH), -1)
    proposed[0, 0, 7] = 0
    proposed[0, 1] = rng.choice(children + WIDTH, WIDTH, replace=False)
    logprobs = -0.5 * rng.permuted(np.tile(np.arange(WIDTH), (1, 2, 1)), axis=2)
    best = np.argsort(-logprobs[0, 1])
    expected = proposed[0, 1, best]
    there = expected < children
    with flashtrie.open(tmp_path / "out.trie") as trie:
        found = trie.search(proposed, logprobs.astype(np.float32), beam_width=WIDTH)
        # Ranks are by frequency, then token: 0 comes first, and so key ids are the tokens.
        assert found.key_ids.tolist() == expected[there].tolist()
        assert found.tokens.reshape(-1, 2)[:, 1].tolist() == expected[there].tolist()
        scores = logprobs[0, 0, 7] + logprobs[0, 1, best][there]
        assert found.scores.tolist() == scores.tolist()
        last = tokens[-1000:].reshape(-1)
        ids = trie.lookup_flat(last, np.arange(0, len(last) + 1, 2))
        assert ids.tolist() == list(range(children - 1000, children))


@pytest.mark.large
def test_7_more_than_2_31_tokens_in_a_row_group(tmp_path):
    def part(first: int) -> pa.Array[Any]:
        tokens = np.full((ROWS, LENGTH), 7, np.uint32)
        tokens[:, 0] = first + np.arange(ROWS) % 3
        offsets = pa.array(np.arange(ROWS + 1) * LENGTH, pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(tokens.reshape(-1)))

    column = pa.chunked_array([part(0)] * 512 + [part(5)])
    source = tmp_path / "keywords.parquet"
    pq.write_table(pa.table({"tokens": column}), source, row_group_size=len(column))
    group = pq.read_metadata(source).row_group(0)
    assert group.column(0).num_values > 2**31
    found = run("build", source, "--memory", "600MiB", "--quiet", "--json", cwd=tmp_path)
    assert found.code == 0
    assert (found.json["keywords"], found.json["rows"]) == (6, len(column))
    assert found.json["peak_rss_bytes"] < 600 << 20
    # The last rows are those whose tokens lie behind the 2^31st.
    keyword = ",".join(["7"] * LENGTH)
    found = run("lookup", "keywords.trie", "--tokens", keyword, "--quiet", cwd=tmp_path)
    assert found.code == 0
