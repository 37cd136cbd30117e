"""Each command once and its --json keys; what is behind them is tested with the library."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import ROWS, process, trie
from tests.conftest import write_parquet

KEYS = sorted({tuple(row) for row in ROWS})


def test_generate(folder):
    made = trie("generate", "keys", "--keywords", "1e3", "--vocab-size", "1e4", "--json").json
    assert (made["keywords"], made["rows"], made["files"]) == (1000, 1000, 4)
    assert len(list((folder / "keys").iterdir())) == 4
    assert trie("generate", "keys", "--keywords", "10").code == 2
    found = trie("generate", "one.parquet", "--keywords", "10", "--duplicates", "0.5")
    assert found.code == 0
    assert len(pq.read_table("one.parquet")) == 15


def test_build(built, folder):
    made = trie("build", built / "keywords.parquet", "--column", "tokens", "--json").json
    assert made.keys() >= {
        "keywords",
        "rows",
        "duplicates",
        "conflicts",
        "nodes",
        "bytes",
        "bits_per_keyword",
        "seconds",
        "peak_rss_bytes",
        "output",
    }
    assert (made["keywords"], made["rows"], made["duplicates"]) == (7, 8, 1)
    assert made["output"] == "keywords.trie"
    assert made["bytes"] == (folder / "keywords.trie").stat().st_size


def test_build_prints_a_table(built):
    found = trie("build", built / "keywords.parquet", "--column", "tokens")
    assert found.code == 0
    assert re.search(r"^keywords +7$", found.stdout, re.MULTILINE)


def test_build_names_its_output(folder):
    for name in ("a.b.parquet", "c/d.parquet", "c/part-2.parquet"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        write_parquet(path, [[1]])
    assert trie("build", "a.b.parquet", "--json").json["output"] == "a.b.trie"
    assert trie("build", "c/", "--json").json["output"] == "c.trie"
    assert trie("build", "c/d.parquet", "--json").json["output"] == "d.trie"
    for inputs in (["c/*.parquet"], ["a.b.parquet", "c"]):
        found = trie("build", *inputs)
        assert found.code == 2
        assert "-o OUT.trie" in found.stderr
    assert trie("build", "c/*.parquet", "a.b.parquet", "-o", "all.trie").code == 0


def test_build_replaces_nothing_without_force(built, folder):
    source = built / "plain.trie"
    (folder / "out.trie").write_bytes(b"mine")
    words = ["build", built / "keywords.parquet", "--column", "tokens", "-o", "out.trie"]
    found = trie(*words)
    assert found.code == 2
    assert "--force" in found.stderr
    assert (folder / "out.trie").read_bytes() == b"mine"
    assert trie(*words, "--force").code == 0
    assert (folder / "out.trie").read_bytes() == source.read_bytes()


def test_build_stopped_by_a_check_keeps_the_old_artifact(built, folder):
    (folder / "out.trie").write_bytes((built / "plain.trie").read_bytes())
    write_parquet(folder / "half.parquet", ROWS[:2])
    for option in (["--min-keywords", "3"], ["--max-shrink", "5%"]):
        found = trie("build", "half.parquet", "-o", "out.trie", "--force", "--json", *option)
        assert found.code == 1
        assert found.json["exit_code"] == 1
    assert (folder / "out.trie").read_bytes() == (built / "plain.trie").read_bytes()


def test_build_dry_run_writes_nothing(built, folder):
    words = ["build", built / "keywords.parquet", "--column", "tokens", "--dry-run", "--json"]
    assert trie(*words).json["rows"] == 8
    assert list(folder.iterdir()) == []


def test_info(built):
    found = trie("info", built / "keywords.trie", "--json").json
    assert found.keys() >= {
        "format_version",
        "keywords",
        "nodes",
        "alphabet",
        "max_length",
        "bytes",
        "bits_per_keyword",
        "sections",
        "levels",
        "tags",
    }
    assert (found["format_version"], found["keywords"], found["max_length"]) == (1, 7, 5)
    assert found["tags"] == {"kind": "test"}
    assert found["bytes"] == (built / "keywords.trie").stat().st_size
    assert sum(level["keywords"] for level in found["levels"]) == 7
    assert sum(level["nodes"] for level in found["levels"]) == found["nodes"]
    weights = [section["bytes"] for section in found["sections"].values()]
    assert sum(weights) < found["bytes"] < sum(weights) + 20_000
    text = trie("info", built / "keywords.trie").stdout
    assert "tag kind" in text and "label_low" in text and "bits/keyword" in text


def test_verify(built):
    found = trie("verify", built / "keywords.trie", "--json", "--quiet")
    assert found.code == 0
    assert found.json["ok"] is True
    assert all(check.keys() == {"name", "ok", "detail"} for check in found.json["checks"])
    assert trie("verify", built / "keywords.trie").code == 0


def test_verify_against_its_source(built):
    options = ["--against", built / "keywords.parquet", "--column", "tokens", "--quiet", "--json"]
    assert trie("verify", built / "plain.trie", *options).code == 0
    valued = ["--values", "value"]
    assert trie("verify", built / "keywords.trie", *options, *valued).json["ok"] is True


def test_verify_against_several_inputs(built, folder):
    write_parquet(folder / "a.parquet", ROWS[:3])
    write_parquet(folder / "b.parquet", ROWS[3:])
    both = ["--against", "a.parquet", "b.parquet", "--quiet"]
    assert trie("verify", built / "plain.trie", *both, "--json").code == 0
    assert trie("verify", *both[:3], built / "plain.trie", "--json").code == 0
    assert trie("verify", built / "plain.trie", "--against").code == 2
    found = trie("verify", built / "plain.trie", "--against", "a.parquet", "--quiet", "--json")
    assert found.code == 1
    assert found.json["ok"] is False


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_verify_says_no(built, folder, damage):
    data = bytearray((built / "keywords.trie").read_bytes())
    if damage == "flipped":
        data[-200] ^= 4
    changed = {"cut": data[:-1], "flipped": data, "other": b"PAR1 and so on"}[damage]
    (folder / "bad.trie").write_bytes(changed)
    found = trie("verify", "bad.trie", "--json", "--quiet")
    assert found.code == 1
    assert found.json["ok"] is False
    assert any(not check["ok"] and check["detail"] for check in found.json["checks"])
    assert trie("verify", "bad.trie").code == 1
    if damage != "flipped":
        assert trie("info", "bad.trie").code == 2


def test_lookup(built):
    words = ["lookup", built / "keywords.trie", "--tokens", "1,2", "--tokens", "2", "--json"]
    found = trie(*words, "--quiet")
    assert found.code == 1
    report = found.json
    assert report["found"] == 1
    assert [row["tokens"] for row in report["results"]] == [[1, 2], [2]]
    assert report["results"][0]["value"] == 20
    assert isinstance(report["results"][0]["key_id"], int)
    assert report["results"][1]["key_id"] is report["results"][1]["value"] is None
    assert trie("lookup", built / "keywords.trie", "--tokens", "1,2").code == 0


def test_lookup_prints_lines(built):
    found = trie("lookup", built / "keywords.trie", "--tokens", "7", "--tokens", "5,5", "--quiet")
    key_id = found.stdout.split("\t")[1]
    assert found.stdout == f"7\t{key_id}\t-40\n5,5\t-\t-\n"
    plain = trie("lookup", built / "plain.trie", "--tokens", "5,5", "--quiet")
    assert plain.stdout == "5,5\t-\n"


def test_lookup_of_a_column(built, folder):
    words = ["lookup", built / "keywords.trie", "--input", built / "keywords.parquet"]
    words += ["--column", "tokens", "--quiet"]
    report = trie(*words, "--json").json
    assert report["found"] == len(report["results"]) == len(ROWS)
    assert trie(*words, "-o", "out.parquet").code == 0
    table = pq.read_table("out.parquet").to_pydict()
    assert table["tokens"] == ROWS
    assert table["key_id"] == [row["key_id"] for row in report["results"]]
    assert table["value"] == [10, 20, 30, -40, 50, 60, 20, 70]
    assert trie(*words, "-o", "out.parquet").code == 2
    assert trie(*words, "-o", "out.parquet", "--force").code == 0


@pytest.mark.parametrize("column", ["nothing", "text", "value"])
def test_lookup_reads_no_values(built, folder, column):
    """The options for them are those of build and verify: neither column nor conflict matters."""
    table = {"tokens": [[1, 2], [7], [1, 2]], "text": ["a", "b", "c"], "value": [1, None, 2]}
    pq.write_table(pa.table(table), "q.parquet")
    words = ["lookup", built / "keywords.trie", "--input", "q.parquet", "--json", "--quiet"]
    found = trie(*words, "--values", column, "--on-conflict", "error")
    assert (found.code, found.stderr) == (0, "")
    assert [row["value"] for row in found.json["results"]] == [20, -40, 20]
    assert found.json == trie(*words).json


def test_lookup_writes_null_for_what_is_absent(built, folder):
    write_parquet(folder / "q.parquet", [[1, 2], [4, 4]])
    found = trie("lookup", built / "keywords.trie", "--input", "q.parquet", "-o", "out.parquet")
    assert found.code == 1
    table = pq.read_table("out.parquet").to_pydict()
    assert table["key_id"][1] is table["value"][1] is None
    assert table["value"][0] == 20


@pytest.mark.parametrize("words", [[], ["--tokens", "1", "--input", "x.parquet"]])
def test_lookup_wants_one_of_both(built, words):
    found = trie("lookup", built / "keywords.trie", *words)
    assert found.code == 2
    assert "--tokens or --input" in found.stderr


def test_dump(built, folder):
    found = trie("dump", built / "keywords.trie", "--quiet")
    lines = [line.split("\t") for line in found.stdout.splitlines()]
    assert [int(line[0]) for line in lines] == list(range(len(KEYS)))
    assert sorted(tuple(map(int, line[1].split(","))) for line in lines) == KEYS
    assert {line[1]: int(line[2]) for line in lines}["1,2"] == 20
    assert trie("dump", built / "keywords.trie", "-o", "out.parquet").code == 0
    table = pq.read_table("out.parquet").to_pydict()
    assert [[str(k), ",".join(map(str, t)), str(v)] for k, t, v in zip(*table.values())] == lines
    assert trie("dump", built / "plain.trie", "-o", "plain.parquet", "--json").json["keywords"] == 7
    assert pq.read_schema("plain.parquet").names == ["key_id", "tokens"]


def test_dump_with_json_wants_a_file(built):
    found = trie("dump", built / "keywords.trie", "--json")
    assert found.code == 2
    assert "-o" in found.json["error"]["what"]


def test_what_was_dumped_builds_the_same_artifact(built, folder):
    assert trie("dump", built / "keywords.trie", "-o", "out.parquet").code == 0
    options = ["--column", "tokens", "--values", "value", "--tag", "kind=test"]
    assert trie("build", "out.parquet", *options).code == 0
    # The alphabet is ordered by the frequency of tokens in all rows, and a duplicate is gone.
    report = trie("diff", built / "keywords.trie", "out.trie", "--json").json
    assert (report["old_keywords"], report["new_keywords"]) == (len(KEYS), len(KEYS))
    assert (report["added"], report["removed"], report["changed"]) == (0, 0, 0)


def test_diff(built, folder):
    rows = [[1, 2, 3], [1, 2], [5, 5, 5], [300, 1], [7]]
    source = write_parquet(folder / "new.parquet", rows, [10, 99, 1, 60, -40])
    assert trie("build", source, "--values", "value", "--column", "tokens").code == 0
    words = ["diff", built / "keywords.trie", "new.trie", "-o", "out.parquet"]
    report = trie(*words, "--json", "--quiet").json
    assert report == {
        "old_keywords": 7,
        "new_keywords": 5,
        "added": 1,
        "removed": 3,
        "changed": 1,
        "output": "out.parquet",
    }
    found = {tuple(row["tokens"]): row for row in pq.read_table("out.parquet").to_pylist()}
    assert {key: row["change"] for key, row in found.items()} == {
        (5, 5, 5): "added",
        (1, 2, 4): "removed",
        (7, 8, 9, 10, 11): "removed",
        (12, 9, 10, 11): "removed",
        (1, 2): "changed",
    }
    assert (found[1, 2]["old_value"], found[1, 2]["new_value"]) == (20, 99)
    assert (found[5, 5, 5]["old_value"], found[5, 5, 5]["new_value"]) == (None, 1)
    assert trie(*words).code == 2
    assert "added         1\n" in trie(*words, "--force").stdout


def test_diff_of_equal_artifacts(built):
    path = built / "keywords.trie"
    report = trie("diff", path, path, "--json").json
    assert (report["added"], report["removed"], report["changed"]) == (0, 0, 0)


def test_diff_where_one_has_no_values(built):
    report = trie("diff", built / "keywords.trie", built / "plain.trie", "--json").json
    assert (report["added"], report["removed"], report["changed"]) == (0, 0, 7)


def save_queries(path, **more):
    tokens = np.array([[[1, 7], [2, 8], [3, 4]], [[9, 9], [9, 9], [9, 9]]], np.int32)
    logprobs = np.full(tokens.shape, -1.0, np.float32)
    np.savez(path, tokens=tokens, logprobs=logprobs, **more)


def test_search(built, folder):
    save_queries("q.npz")
    words = ["search", built / "keywords.trie", "--queries", "q.npz", "--bw", "10", "--quiet"]
    report = trie(*words, "--json").json
    assert (report["queries"], report["results"]) == (2, 4)
    best = report["rows"][0]
    assert (best["query"], best["results"], best["tokens"], best["value"]) == (0, 4, [7], -40)
    assert (report["rows"][1]["results"], report["rows"][1]["key_id"]) == (0, None)
    assert "7" in trie(*words).stdout
    assert trie(*words, "-o", "out.parquet", "--json").json["results"] == 4
    table = pq.read_table("out.parquet").to_pydict()
    assert list(table) == ["query", "position", "key_id", "score", "length", "tokens", "value"]
    assert table["query"] == [0, 0, 0, 0]
    assert table["position"] == [0, 1, 2, 3]
    assert table["score"] == [-1, -2, -3, -3]
    assert table["length"] == [1, 2, 3, 3]
    assert table["tokens"] == [[7], [1, 2], [1, 2, 3], [1, 2, 4]]
    assert table["value"] == [-40, 20, 10, 30]
    assert trie(*words, "-o", "out.parquet").code == 2


def test_search_of_no_queries(built, folder):
    empty = np.zeros((0, 3, 2), np.int64)
    np.savez("q.npz", tokens=empty, logprobs=empty.astype(np.float32))
    words = ["search", built / "keywords.trie", "--queries", "q.npz", "--quiet"]
    assert trie(*words, "--json").json["rows"] == []
    assert trie(*words).stdout == "no queries\n"
    assert trie(*words, "-o", "out.parquet").code == 0
    assert len(pq.read_table("out.parquet")) == 0


def test_search_of_an_artifact_without_values(built, folder):
    save_queries("q.npz")
    words = ["search", built / "plain.trie", "--queries", "q.npz", "--bw", "2", "-o", "out.parquet"]
    assert trie(*words).code == 0
    assert pq.read_schema("out.parquet").names[-1] == "tokens"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--queries", "q.npz", "--bw", "0"], ""),
        (["--queries", "q.npz", "--bw", "100000"], ""),
        (["--queries", "none.npz"], "none.npz"),
        (["--queries", "q.txt"], "npz or .safetensors"),
        (["--queries", "q.npz", "--length-penalty", "nan"], ""),
        ([], "--queries"),
    ],
)
def test_searches_that_cannot_be(built, folder, words, message):
    save_queries("q.npz")
    found = trie("search", built / "keywords.trie", *words)
    assert found.code == 2
    assert message in found.stderr
    assert "internal" not in found.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An artifact that is large enough for full queries of a small beam width."""
    folder = tmp_path_factory.mktemp("large")
    keys = folder / "keys.parquet"
    words = ["--keywords", "5e4", "--vocab-size", "5e3", "--kind", "narrow"]
    assert trie("generate", keys, *words).code == 0
    assert trie("build", keys, "-o", folder / "keys.trie", "--tag", "kind=narrow").code == 0
    return folder / "keys.trie"


def test_bench(large, folder):
    words = ["bench", large, "--bw", "20", "--queries", "4", "--steps", "4", "--top-k", "100"]
    report = trie(*words, "--save-queries", "q.npz", "--json", "--quiet").json
    assert report.keys() >= {
        "device",
        "chip",
        "driver",
        "kind",
        "commit",
        "keywords",
        "seed",
        "rows",
    }
    assert (report["device"], report["kind"], report["keywords"]) == ("cpu", "narrow", 50_000)
    (row,) = report["rows"]
    assert row.keys() >= {
        "bw",
        "batch",
        "top_k",
        "steps",
        "drawn",
        "queries",
        "mean_ms",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "queries_per_second",
        "active_beams",
        "candidates",
    }
    assert (row["bw"], row["batch"], row["top_k"], row["steps"]) == (20, 1, 100, 4)
    search = ["search", large, "--queries", "q.npz", "--bw", "20", "--json", "--quiet"]
    found = trie(*search).json
    assert found["queries"] == row["queries"]
    assert all(best["results"] == 20 for best in found["rows"])
    assert trie(*words, "--save-queries", "q.npz").code == 2


def test_bench_compares_and_plots(large, folder):
    pytest.importorskip("matplotlib")
    words = ["bench", large, "--bw", "5", "--bw", "10", "--batch", "2", "--queries", "4"]
    words += ["--steps", "4", "--top-k", "100", "--against", "cpu", "--plot", "out.png", "--quiet"]
    report = trie(*words, "--json").json
    assert [(row["bw"], row["batch"], row["equal"]) for row in report["rows"]] == [
        (5, 2, True),
        (10, 2, True),
    ]
    assert all(row["speedup"] > 0 for row in report["rows"])
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    assert trie(*words).code == 2
    assert "speedup" in trie(*words, "--force").stdout
    assert trie(*words[:-2], "out.pdf").code == 2


def test_bench_of_too_few_keywords(built):
    found = trie("bench", built / "keywords.trie", "--quiet")
    assert found.code == 2
    assert "internal" not in found.stderr


def test_quiet_prints_nothing_but_the_result(built):
    found = process("lookup", built / "keywords.trie", "--tokens", "1,2", "--quiet")
    assert found.stderr == ""
    assert found.stdout.startswith("1,2\t")
