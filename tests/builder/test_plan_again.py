"""What was counted decides over memory and scratch files, not what the footers let expect."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import build as build_module
from flashtrie.builder import pipeline, plan
from flashtrie.builder import sample as sample_module
from flashtrie.builder.alphabet import Alphabet
from flashtrie.builder.batches import Batch
from flashtrie.builder.build import build
from flashtrie.builder.held import Holder
from flashtrie.builder.sample import Sample
from flashtrie.builder.spill import Spill
from tests.conftest import write_parquet

GIB = 1 << 30


def test_the_alphabet_leaves_less_to_ranges_and_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 million rows spill from the beginning, and then have an alphabet of 3.1 GB."""
    source = write_parquet(tmp_path / "keys.parquet", [[i, i % 7] for i in range(500)])
    rows, tokens, process, alphabet = 400_000_000, 1_600_000_000, 240 << 20, 3_100_000_000
    spills: list[Spill] = []

    def large(_rows: int, _tokens: int, has_values: bool, *rest: Any) -> plan.BuildPlan:
        return plan.plan_build(rows, tokens, has_values, *rest)

    def made(*arguments: Any) -> Spill:
        spills.append(Spill(*arguments))
        return spills[-1]

    monkeypatch.setattr(build_module, "plan_build", large)
    monkeypatch.setattr(build_module, "process_memory", lambda: process)
    monkeypatch.setattr(pipeline, "alphabet_bytes", lambda ids: alphabet)
    monkeypatch.setattr(pipeline, "Spill", made)
    build([source], tmp_path / "keys.trie", memory=6 * GIB, threads=8)
    before = plan.plan_build(rows, tokens, False, 8, 6 * GIB, process)
    after = plan.plan_build(rows, tokens, False, 8, 6 * GIB, process, alphabet)
    assert after.range_bytes < before.range_bytes / 2
    assert {(spill.range_bytes, spill.buffer_bytes) for spill in spills} == {
        (after.range_bytes, after.buffer_bytes)
    }


def test_codes_go_once_the_rows_are_scattered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc
    import weakref

    source = write_parquet(tmp_path / "keys.parquet", [[i, i % 7] for i in range(500)])
    made: list[weakref.ref[Any]] = []
    from_counts: Callable[..., Alphabet] = Alphabet.from_counts

    def kept(*arguments: Any) -> Alphabet:
        alphabet = from_counts(*arguments)
        made.append(weakref.ref(alphabet.code_of))
        return alphabet

    def looked(*arguments: Any) -> Any:
        gc.collect()
        assert [code_of() for code_of in made] == [None]
        return sort(*arguments)

    sort = pipeline.Pipeline._sort
    monkeypatch.setattr(Alphabet, "from_counts", kept)
    monkeypatch.setattr(pipeline.Pipeline, "_sort", looked)
    build([source], tmp_path / "keys.trie", threads=1)
    assert len(made) == 1


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """20,000 rows of 200 tokens, which their pages' dictionaries let look like 80,000 tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0} | {f"w{i}": i for i in range(1, 300)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(1, 300, 200)) for _ in range(10)]
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"text": texts * 2000}), path, row_group_size=2500)
    return path, {"tokenizer": tmp_path / "tokenizer.json"}


class Holding(Holder):
    """Remembers the most bytes that were held."""

    most = 0

    def hold(self, batch: Batch) -> None:
        super().hold(batch)
        held = sum(kept.tokens.nbytes for kept in self._batches or [])
        type(self).most = max(type(self).most, held)


@pytest.mark.parametrize("mib", [20, 100])
def test_text_of_more_tokens_than_it_looks_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: tuple[Path, dict[str, Any]], mib: int
) -> None:
    """4 million tokens take 48 MB: with 20 MiB they are let go of when that is seen."""
    source, options = text
    monkeypatch.setattr(build_module, "process_memory", lambda: 0)
    monkeypatch.setattr(plan, "_THREAD_BYTES", 0)
    monkeypatch.setattr(plan, "MAX_RANGES", 64)
    monkeypatch.setattr(plan, "_LEAST_RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(Holding, "most", 0)
    monkeypatch.setattr(pipeline, "Holder", Holding)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    seen: set[str] = set()

    def progress(phase: str, done: int, total: int, unit: str, /) -> None:
        if os.listdir(scratch):
            seen.add(phase)

    report = build(
        [source],
        tmp_path / "keys.trie",
        memory=mib << 20,
        threads=2,
        tmp_dir=scratch,
        progress=progress,
        **options,
    )
    assert report.keywords == 10
    assert report.rows == 20_000
    held = plan._HELD_TOKEN // 4 * Holding.most
    assert (seen == {"scatter", "sort"}) == (mib == 20)
    assert held <= mib << 20
    assert held > (mib << 20) // 4
    whole = build([source], tmp_path / "whole.trie", threads=1, **options)
    assert whole.keywords == 10
    assert (tmp_path / "keys.trie").read_bytes() == (tmp_path / "whole.trie").read_bytes()


def test_a_sample_of_more_than_was_expected_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_module, "_TOKENS", 1000)
    sample = Sample(2000, 2000, 4096)  # and each has 50 tokens
    for first in range(0, 2000, 7):
        tokens = np.repeat(np.arange(first, first + 7, dtype=np.uint32), 50)
        offsets = np.arange(0, 351, 50, dtype=np.int64)
        sample.add(Batch(tokens, offsets, None, 0, 0, "file", first, -1))
        assert sum(len(drawn) for drawn, _ in sample._drawn) <= 2400
    lengths = np.concatenate([lengths for _, lengths in sample._drawn])
    kept = np.concatenate([drawn for drawn, _ in sample._drawn])
    assert (lengths == 50).all()
    # From all over the rows, whatever came when strides were short.
    assert len(lengths) >= 15
    assert np.diff(kept[::50], prepend=0).max() < 400
