"""Queries in files, and the results of a search in parts."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from flashtrie.cpu import query_files
from flashtrie.cpu.query_files import (
    Queries,
    ResultsOutput,
    read_queries,
    search_queries,
    write_queries,
)
from flashtrie.formats.errors import InputError, OutputError, UsageError

TOKENS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
LOGPROBS = -TOKENS.astype(np.float32)
END = np.zeros((2, 4), np.float32)


def save(path, **arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "arrays",
    [
        {"tokens": TOKENS, "logprobs": LOGPROBS},
        {"tokens": TOKENS.astype(np.uint64), "logprobs": LOGPROBS, "end_logprobs": END},
        {"tokens": TOKENS.astype(np.int16), "logprobs": LOGPROBS.astype(np.float64)},
        {"logits": LOGPROBS.astype(np.float16)},
        {"logits": LOGPROBS, "end_logprobs": END},
        {"tokens": TOKENS[:0], "logprobs": LOGPROBS[:0]},
    ],
)
def test_what_is_written_is_read(tmp_path, suffix, arrays):
    path = tmp_path / f"q{suffix}"
    write_queries(path, Queries(**arrays))
    found = read_queries(path).arrays()
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert len(read_queries(path)) == len(arrays.get("tokens", arrays.get("logits")))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_other_arrays_are_left_alone(tmp_path, suffix):
    path = tmp_path / f"q{suffix}"
    save(path, tokens=TOKENS, logprobs=LOGPROBS, names=np.arange(3))
    assert read_queries(path).arrays().keys() == {"tokens", "logprobs"}


def test_bfloat16_is_widened(tmp_path):
    path = tmp_path / "q.safetensors"
    values = np.array([[[1.0, -2.5, 0.0, np.inf]]], np.float32)
    data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    entry = {"dtype": "BF16", "shape": [1, 1, 4], "data_offsets": [0, len(data)]}
    header = json.dumps({"logits": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    logits = read_queries(path).logits
    assert logits is not None and logits.dtype == np.float32
    np.testing.assert_array_equal(logits, values)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"tokens": TOKENS}, "no array logprobs"),
        ({"logprobs": LOGPROBS}, "no array tokens"),
        ({"other": TOKENS}, "no array logprobs and no tokens"),
        ({"tokens": TOKENS, "logprobs": LOGPROBS, "logits": LOGPROBS}, "both"),
    ],
)
def test_arrays_that_are_missing(tmp_path, suffix, arrays, message):
    path = tmp_path / f"q{suffix}"
    save(path, **arrays)
    with pytest.raises(InputError, match=message):
        read_queries(path)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut"])
def test_files_that_cannot_be_read(tmp_path, suffix, damage):
    path = tmp_path / f"q{suffix}"
    save(path, tokens=TOKENS, logprobs=LOGPROBS)
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"queries\n" * 9, "cut": data[:-9]}.get(damage, data))
    if damage == "missing":
        path.unlink()
    with pytest.raises(InputError, match="cannot read the queries"):
        read_queries(path)


def test_a_pickle_is_not_loaded(tmp_path):
    path = tmp_path / "q.npz"
    np.savez(path, tokens=np.array([{}]), logprobs=LOGPROBS)
    with pytest.raises(InputError, match="cannot read the queries"):
        read_queries(path)


@pytest.mark.parametrize("name", ["q.npy", "q", "q.parquet"])
def test_kinds_of_file_that_are_not_known(tmp_path, name):
    with pytest.raises(UsageError, match="npz or .safetensors"):
        read_queries(tmp_path / name)
    with pytest.raises(UsageError, match="npz or .safetensors"):
        write_queries(tmp_path / name, Queries(TOKENS, LOGPROBS))


def test_nothing_is_replaced_without_force(tmp_path):
    path = tmp_path / "q.npz"
    path.write_bytes(b"mine")
    with pytest.raises(OutputError, match="--force"):
        write_queries(path, Queries(TOKENS, LOGPROBS))
    assert path.read_bytes() == b"mine"
    write_queries(path, Queries(TOKENS, LOGPROBS), force=True)
    assert len(read_queries(path)) == 2
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("logits", [False, True])
def test_a_search_in_parts_is_the_search(tmp_path, build_trie, monkeypatch, logits):
    monkeypatch.setattr(query_files, "_PART_RESULTS", 64 * 5)
    random = np.random.default_rng(1)
    rows = [random.integers(0, 8, random.integers(1, 4)).tolist() for _ in range(200)]
    shape = (150, 3, 8)
    scores = random.normal(size=shape).astype(np.float32)
    queries = (
        Queries(logits=scores)
        if logits
        else Queries(np.argsort(random.random(shape)), -np.abs(scores))
    )
    with build_trie(rows, list(range(200))) as trie:
        search = trie.search_logits if logits else trie.search
        whole = search(**queries.arrays(), beam_width=5)
        with ResultsOutput(tmp_path / "out.parquet", values=True) as file:
            firsts = []
            for first, part in search_queries(trie, queries, beam_width=5):
                firsts.append(first)
                file.add(first, part)
    assert firsts == [0, 64, 128]
    table = pq.read_table(tmp_path / "out.parquet")
    np.testing.assert_array_equal(table["key_id"], whole.key_ids)
    np.testing.assert_array_equal(table["score"], whole.scores)
    np.testing.assert_array_equal(table["length"], whole.lengths)
    np.testing.assert_array_equal(table["value"], whole.values)
    counts = np.diff(whole.offsets)
    np.testing.assert_array_equal(table["query"], np.repeat(np.arange(150), counts))
    positions = [i for count in counts for i in range(count)]
    np.testing.assert_array_equal(table["position"], positions)
    found: Any = table["tokens"].to_pylist()
    assert [token for row in found for token in row] == whole.tokens.tolist()
