"""What tests share: profiles, a mark, and key sets written to Parquet and built."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

import flashtrie

# An example builds an artifact: few of them by default, HYPOTHESIS_PROFILE=thorough for many.
_BUILDING: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("quick", max_examples=40, **_BUILDING)
settings.register_profile("emulated", max_examples=8, **_BUILDING)
settings.register_profile("thorough", max_examples=1000, **_BUILDING)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

BuildTrie = Callable[..., "AbstractContextManager[flashtrie.Trie]"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "large: minutes, and some a GiB of memory; make test-large")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is large is skipped, but with FLASHTRIE_LARGE=1."""
    if not os.environ.get("FLASHTRIE_LARGE"):
        for item in items:
            if item.get_closest_marker("large"):
                item.add_marker(pytest.mark.skip(reason="large: make test-large runs it"))


def write_parquet(
    path: Path,
    rows: Sequence[Sequence[int]],
    values: Sequence[int] | None = None,
    *,
    dtype: Any = np.uint32,
    row_group_size: int | None = None,
) -> Path:
    """Write one shard: a list column `tokens`, and `value` where there are values."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    flat = np.array([token for row in rows for token in row], dtype)
    tokens = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat))
    columns: dict[str, pa.Array[Any]] = {"tokens": tokens}
    if values is not None:
        columns["value"] = pa.array(list(values), pa.int64())
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size or max(len(rows), 1))
    return path


@pytest.fixture(scope="session")
def build_trie(tmp_path_factory: pytest.TempPathFactory) -> BuildTrie:
    """Build rows into an artifact and open it: `with build_trie(rows, values, **options) as trie`.

    The rows are split over `shards` files of small row groups. Options go to flashtrie.build. The
    folder goes when the block ends.
    """

    @contextmanager
    def build(
        rows: Sequence[Sequence[int]],
        values: Sequence[int] | None = None,
        *,
        shards: int = 1,
        row_group_size: int | None = None,
        **options: Any,
    ) -> Iterator[flashtrie.Trie]:
        folder = tmp_path_factory.mktemp("trie")
        inputs = [
            write_parquet(
                folder / f"part-{i}.parquet",
                rows[i::shards],
                None if values is None else values[i::shards],
                row_group_size=row_group_size,
            )
            for i in range(shards)
        ]
        output = folder / "out.trie"
        if values is not None:
            options["values"] = "value"
        try:
            flashtrie.build(inputs, output, **options)
            with flashtrie.open(output) as trie:
                yield trie
        finally:
            shutil.rmtree(folder)

    return build
