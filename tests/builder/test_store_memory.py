"""A tail store that is large against --memory: what is held to write it does not grow with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder.plan import plan_build
from flashtrie.formats.errors import UsageError
from tests.cases.conftest import least_memory, run

ROWS, BATCH = 3_000_000, 100_000
MIB = 1 << 20


def write_keywords(path: Path) -> Path:
    """90 million tokens in keywords of 20 to 40, which have no long ends in common."""
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema({"tokens": pa.list_(pa.uint32())})) as writer:
        for _ in range(ROWS // BATCH):
            offsets = np.cumsum([0, *rng.integers(20, 41, BATCH)]).astype(np.int32)
            tokens = rng.integers(0, 256, offsets[-1], np.uint8).astype(np.uint32)
            column: Any = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens))
            writer.write_table(pa.table({"tokens": column}))
    return path


def test_a_large_store_in_the_least_memory(tmp_path):
    """Two bytes a token of the store would be too much."""
    source, output = write_keywords(tmp_path / "keywords.parquet"), tmp_path / "out.trie"
    options = ["--threads", "1", "--tails", "indexed"]
    least = least_memory(source, "-o", output, *options)
    words = ["build", source, "-o", output, "--memory", f"{least}MiB", "--json", "--quiet"]
    found = run(*words, *options)
    assert found.code == 0, found.stdout
    assert found.json["keywords"] == ROWS
    assert output.stat().st_size > 80 * MIB  # a byte and more a token
    assert found.json["peak_rss_bytes"] <= 1.15 * least * MIB


def test_bitmaps_are_planned_for_by_the_token():
    """A hundred million keywords of 20 tokens: 0.3 bytes a token are held to write them."""
    rows, tokens, process = 10**8, 2 * 10**9, 240 * MIB
    with pytest.raises(UsageError) as caught:
        plan_build(rows, tokens, False, 1, 600 * MIB, process)
    least = int(caught.value.hint.split()[3].replace(",", "")) * MIB
    assert least > process + 0.3 * tokens
    plan = plan_build(rows, tokens, False, 1, least, process)
    assert plan.spill
    assert process + 0.3 * tokens < plan.peak_memory <= least
