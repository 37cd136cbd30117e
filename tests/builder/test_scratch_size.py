"""Scratch files take at most 1.5 times the tokens as they came, 4 bytes each."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import plan
from flashtrie.builder.build import build

ROWS = 400_000


def lengths_and_tokens(kind):
    rng = np.random.default_rng(0)
    lengths = np.ones(ROWS, int) if kind == "one token" else rng.integers(1, 9, ROWS)
    if kind == "rare tokens":  # the longest codes, and no sharing
        return lengths, rng.integers(0, 2**32 - 1, lengths.sum())
    power = (rng.pareto(0.3, lengths.sum()) * 2).clip(0, 2_000_000)
    return lengths, power.astype(np.int64)


class Watch(threading.Thread):
    """The largest size of a folder while a block runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._done = threading.Event()
        self.largest = 0

    def run(self) -> None:
        while not self._done.wait(0.002):
            size = 0
            with suppress(FileNotFoundError):  # read and removed meanwhile
                for path in self._folder.rglob("*"):
                    size += path.stat().st_size
            self.largest = max(self.largest, size)

    def __enter__(self) -> "Watch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


@pytest.mark.parametrize("tails", ["auto", "indexed"])
@pytest.mark.parametrize("kind", ["power law", "one token", "rare tokens"])
def test_scratch_is_small(tmp_path, monkeypatch, kind, tails):
    lengths, tokens = lengths_and_tokens(kind)
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    column: Any = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(tokens.astype(np.uint32))
    )
    pq.write_table(pa.table({"tokens": column}), tmp_path / "rows.parquet")
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Watch(scratch) as watch:
        build([tmp_path / "rows.parquet"], tmp_path / "out.trie", tails=tails, tmp_dir=scratch)
    assert 0 < watch.largest <= 1.5 * 4 * len(tokens)
    assert list(scratch.iterdir()) == []
