"""`trie sample`: files in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from tests.sampling import oracle
from tests.sampling.conftest import has_gpu

ROWS = np.random.default_rng(21).standard_normal((5, 300)).astype(np.float32)


def run(*words: Any, device: str = "cpu") -> dict[str, Any]:
    from flashtrie.cli.main import app

    found = CliRunner().invoke(app, ["sample", *map(str, words), "--device", device, "--json"])
    result: dict[str, Any] = json.loads(found.stdout)
    return result | {"exit_code": found.exit_code}


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_files(device: Any, tmp_path: Path, kind: str, dtype: Any) -> None:
    if dtype == ml_dtypes.bfloat16 and kind != "safetensors":
        pytest.skip("NumPy's files have no bfloat16")
    rows = ROWS.astype(dtype)
    source, target = tmp_path / f"logits.{kind}", tmp_path / "kept.safetensors"
    if kind == "npy":
        np.save(source, rows)
    elif kind == "npz":
        np.savez(source, logits=rows)
    else:
        save_file({"logits": rows}, source)
    result = run(
        source, "--top-k", 40, "--top-p", 0.8, "--seed", 3, "-o", target, device=device.name
    )
    assert result["exit_code"] == 0
    kept = load_file(target)
    assert kept["values"].dtype == dtype and kept["indices"].dtype == np.int64
    assert kept["logprobs"].dtype == np.float32 and kept["log_mass"].dtype == np.float64
    for r, row in enumerate(rows):
        expected = oracle.select(row, 40, 0.8)
        part = slice(kept["offsets"][r], kept["offsets"][r + 1])
        assert list(kept["indices"][part]) == list(expected.order)
        assert list(kept["values"][part]) == list(row[expected.order])
        assert kept["tokens"][r] in expected.kept
        assert result["rows"][r]["count"] == len(expected.order)


def test_refusals(tmp_path: Path) -> None:
    np.save(tmp_path / "ints.npy", np.zeros((2, 3), int))
    np.save(tmp_path / "logits.npy", ROWS)
    (tmp_path / "broken.npz").write_bytes(b"no")
    for words in (
        [tmp_path / "ints.npy"],
        [tmp_path / "broken.npz"],
        [tmp_path / "missing.npy"],
        [tmp_path / "logits.txt"],
        [tmp_path / "logits.npy", "--temperature", -1],
        [tmp_path / "logits.npy", "-o", tmp_path / "out.parquet"],
    ):
        result = run(*words)
        assert result["exit_code"] == 2 and result["error"]["what"]


KEYS = [
    "batch", "vocab", "mode", "result", "microseconds", "terabytes_per_second", "peak_bytes",
]  # fmt: skip


def bench(*words: Any) -> dict[str, Any]:
    from flashtrie.cli.main import app

    found = CliRunner().invoke(app, ["bench", *map(str, words), "--json", "--quiet"])
    assert found.exit_code == 0, found.output
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def test_figures_of_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashtrie.cpu import sampling_bench

    monkeypatch.setattr(sampling_bench, "SHAPES", ((2, 5000),))
    monkeypatch.setattr(sampling_bench, "COPIED", 1 << 20)
    result = bench("--suite", "sampling", "--device", "cpu")
    assert result["device"] == "cpu" and result["copy_terabytes_per_second"] > 0
    ours = [row for row in result["rows"] if not row["result"].startswith("PyTorch")]
    assert len(ours) == 9
    for row in result["rows"]:
        assert list(row) == KEYS


@pytest.mark.hardware
@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
def test_figures_of_sampling_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashtrie.gpu import sampling_bench

    part = sampling_bench.Part(((2, 20000),), ("k", "p"), ("mask", "token", "candidates"))
    monkeypatch.setattr(sampling_bench, "GRID", (part,))
    result = bench("--suite", "sampling", "--device", "cuda")
    assert result["device"] == "cuda"
    for row in result["rows"]:
        assert set(KEYS) <= set(row) and row["microseconds"] > 0


def test_figures_of_decoding(tmp_path: Path) -> None:
    from flashtrie import build
    from flashtrie.builder.generate import generate

    generate(tmp_path / "rows.parquet", 3000, vocab_size=4000)
    build([tmp_path / "rows.parquet"], tmp_path / "rows.trie")
    words = ("--suite", "decode", "--device", "cpu", "--bw", 5, "--top-k", 50, "--steps", 4)
    result = bench(tmp_path / "rows.trie", *words, "--batch", 1, "--batch", 3)
    assert [row["batch"] for row in result["rows"]] == [1, 3]
    for row in result["rows"]:
        assert row["microseconds"] > row["proposals_microseconds"] > 0
        assert row["proposals_share"] + row["search_share"] == pytest.approx(1)
