"""The .npz files that are written, by every NumPy that is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashtrie.cpu.query_files import Queries, write_queries
from flashtrie.cpu.sampling_files import write_selection


@pytest.fixture
def older_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy 2.0 has no allow_pickle here: to it each name is that of an array."""
    savez: Any = np.savez

    def old(file: Any, **arrays: Any) -> None:
        savez(file, **{name: np.asarray(array) for name, array in arrays.items()})
        assert "allow_pickle" not in arrays

    monkeypatch.setattr(np, "savez", old)


@pytest.mark.usefixtures("older_numpy")
def test_there_is_no_array_but_those_that_are_meant(tmp_path: Path) -> None:
    queries = Queries(np.zeros((1, 1, 1), np.int32), np.zeros((1, 1, 1), np.float32))
    write_queries(tmp_path / "queries.npz", queries)
    write_selection(tmp_path / "kept.npz", {"indices": np.zeros(3, np.int64)})
    assert np.load(tmp_path / "queries.npz").files == ["tokens", "logprobs"]
    assert np.load(tmp_path / "kept.npz").files == ["indices"]
