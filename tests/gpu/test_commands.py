"""The commands on the GPU: what they print, and that results are the CPU's."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import command, trie
from tests.conftest import write_parquet
from tests.strategies import key_set, proposals

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def built(tmp_path_factory: Any, kernels: None) -> Any:
    """A folder with keys.parquet, keys.trie of it, and queries.npz."""
    place = tmp_path_factory.mktemp("commands")
    rows = key_set("narrow", 50_000)
    source = write_parquet(place / "keys.parquet", rows, list(range(len(rows))))
    options = ["--values", "value", "--tag", "kind=narrow", "--quiet"]
    assert trie("build", source, "-o", place / "keys.trie", *options).code == 0
    given: dict[str, Any] = proposals(rows, 70, 50, tied=True)
    np.savez(place / "queries.npz", **given)
    return place


def test_load(built):
    report = trie("load", built / "keys.trie", "--json", "--quiet").json
    assert report["bytes"] > report["derived_bytes"] > 0
    assert report["gigabytes_per_second"] > 0 and report["free_bytes"] > 0
    found = trie("load", built / "keys.trie")
    assert found.code == 0
    assert "gigabytes_per_second" in found.stdout and "device: cuda, " in found.stderr


def test_load_of_a_damaged_artifact(built, tmp_path):
    content = bytearray((built / "keys.trie").read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.trie"
    damaged.write_bytes(content)
    found = trie("load", damaged)
    assert found.code == 2 and "damaged" in found.stderr
    # The check says what and where.
    found = trie("verify", damaged, "--device", "cuda", "--json")
    assert found.code == 1
    wrong = [check for check in found.json["checks"] if not check["ok"]]
    assert "checksums" in [check["name"] for check in wrong]
    assert "chunk" in wrong[0]["detail"]


def test_32_load_with_too_little_memory(built, monkeypatch):
    from flashtrie.gpu import device

    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    found = trie("load", built / "keys.trie")
    assert found.code == 2
    assert "1,000 are free" in found.stderr


def test_verify(built, tmp_path):
    words = ["verify", built / "keys.trie", "--device", "cuda", "--json", "--quiet"]
    on_cpu = trie("verify", built / "keys.trie", "--device", "cpu", "--json").json["checks"]
    against = ["--against", built / "keys.parquet", "--values", "value"]
    report = trie(*words, *against).json
    assert report["ok"] and report["device"] == "cuda"
    names = [check["name"] for check in report["checks"]]
    assert names == [*(check["name"] for check in on_cpu), "source", "keywords", "values"]
    other = write_parquet(tmp_path / "other.parquet", [(1, 2, 3)] * 3 + [(20_010, 7)])
    found = trie(*words, "--against", other)
    assert found.code == 1
    assert {"source", "keywords"} <= {c["name"] for c in found.json["checks"] if not c["ok"]}


def test_search(built, tmp_path):
    words = ["search", built / "keys.trie", "--queries", built / "queries.npz", "--bw", "300"]
    tables = []
    for device in ("cuda", "cpu"):
        path = tmp_path / f"{device}.parquet"
        report = trie(*words, "--device", device, "-o", path, "--json", "--quiet").json
        assert report["device"] == device and report["queries"] == 70
        tables.append(pq.read_table(path))
    assert tables[0].equals(tables[1]) and len(tables[0]) > 70
    best = [trie(*words, "--device", d, "--json", "--quiet").json["rows"] for d in ("cuda", "cpu")]
    assert best[0] == best[1]


def test_search_of_logits(built, tmp_path):
    logits = np.random.default_rng(0).normal(size=(3, 4, 20_100)).astype(np.float32)
    np.savez(tmp_path / "logits.npz", logits=logits)
    words = ["search", built / "keys.trie", "--queries", tmp_path / "logits.npz", "--bw", "50"]
    for device in ("cuda", "cpu"):
        out = tmp_path / f"{device}.parquet"
        assert trie(*words, "--device", device, "-o", out, "--quiet").code == 0
    ours, theirs = (pq.read_table(tmp_path / f"{device}.parquet") for device in ("cuda", "cpu"))
    # The same but for one unit in the last place of a log-probability.
    assert ours["query"].equals(theirs["query"])
    np.testing.assert_allclose(ours["score"].to_numpy(), theirs["score"].to_numpy(), rtol=1e-6)


@pytest.mark.hardware
def test_bench(built):
    words = ["bench", built / "keys.trie", "--bw", "20", "--bw", "5", "--batch", "1", "--batch"]
    words += ["8", "--queries", "16", "--steps", "4", "--top-k", "100", "--against", "cpu"]
    found = trie(*words, "--device", "cuda", "--json", "--quiet")
    assert found.code == 0
    report = found.json
    assert (report["device"], report["kind"]) == ("cuda", "narrow")
    assert report["driver"] and report["random_sectors_per_second"] > 1e8
    assert [(row["bw"], row["batch"]) for row in report["rows"]] == [
        (20, 1),
        (20, 8),
        (5, 1),
        (5, 8),
    ]
    for row in report["rows"]:
        assert row["equal"] and row["speedup"] > 0 and row["queries"] == 16
        assert 0 < row["mean_ms"] < 50 and row["bytes_touched"] > 0
        assert 0 < row["random_access_share"] < 1
    assert "queries_per_second" in trie(*words, "--device", "cuda").stdout


@pytest.mark.hardware
def test_32_two_processes_at_once(built, tmp_path):
    """Each has blocks that wait for each other; neither waits for the other process for ever."""
    running = []
    for i in range(2):
        words = ["search", built / "keys.trie", "--queries", built / "queries.npz", "--bw", "100"]
        words += ["--device", "cuda", "-o", tmp_path / f"{i}.parquet", "--quiet"]
        running.append(subprocess.Popen(command(*words)))
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    first, second = (pq.read_table(tmp_path / f"{i}.parquet") for i in range(2))
    assert first.equals(second) and len(first) > 0
