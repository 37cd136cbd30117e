"""Case 7: more than 2^31 tokens in one row group. Two minutes, so only with FLASHTRIE_LARGE=1."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases.conftest import run

ROWS, LENGTH = 1 << 16, 64


@pytest.mark.skipif(not os.environ.get("FLASHTRIE_LARGE"), reason="takes two minutes")
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
