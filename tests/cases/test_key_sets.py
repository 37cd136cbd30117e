"""Cases 9, 15, 16, 17 and 18: shapes of key sets, and the same bytes whatever the way to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import flashtrie
from flashtrie import InputError, Trie
from tests.cases.conftest import environment, least_memory, power_law, run, write_matrix
from tests.cli.conftest import trie
from tests.conftest import BuildTrie, write_parquet

TAILS = ["implicit", "indexed"]


@pytest.mark.parametrize("tails", TAILS)
def test_15_prefixes(tmp_path, tails):
    write_parquet(tmp_path / "a.parquet", [[1], [1, 2], [1, 2, 3]])
    write_parquet(tmp_path / "b.parquet", [[1, 2, 3]])
    for name, absent in (("a", ["2", "1,2,3,4"]), ("b", ["1", "1,2", "2,3", "1,2,3,4"])):
        words = ["-o", tmp_path / f"{name}.trie", "--tails", tails, "--quiet"]
        assert trie("build", tmp_path / f"{name}.parquet", *words).code == 0
        present = ["1", "1,2", "1,2,3"] if name == "a" else ["1,2,3"]
        tokens = [f"--tokens={text}" for text in (*present, *absent)]
        found = trie("lookup", tmp_path / f"{name}.trie", *tokens, "--json", "--quiet")
        assert found.code == 1
        ids = [row["key_id"] for row in found.json["results"]]
        assert ids == [*range(len(present)), *[None] * len(absent)]


@pytest.mark.parametrize("tails", TAILS)
def test_16_the_longest_keyword_and_its_prefix(tmp_path, tails):
    """Every prefix is a node, and there is a level for each: some KB, and no recursion."""
    chain = np.random.default_rng(0).integers(0, 1000, 4096).tolist()
    write_parquet(tmp_path / "a.parquet", [chain, chain[:-1]])
    report = flashtrie.build(
        [tmp_path / "a.parquet"], tmp_path / "out.trie", tails=tails, memory=640 << 20, threads=1
    )
    assert report.nodes == 4096
    # A table row and up to ten sections of a word or two for each level.
    assert report.bytes < 4096 * 600
    with flashtrie.open(tmp_path / "out.trie") as opened:
        assert opened.lookup([chain, chain[:-1], chain[:-2]]).tolist() == [1, 0, -1]
        assert opened.keyword(1).tolist() == chain
    assert trie("verify", tmp_path / "out.trie", "--quiet").code == 0


@pytest.mark.parametrize("tails", TAILS)
def test_16_many_longest_keywords_in_tails(tmp_path, tails):
    tokens = np.random.default_rng(0).integers(0, 50_000, (300, 4096))
    source = write_matrix(tmp_path / "a.parquet", tokens)
    report = flashtrie.build([source], tmp_path / "out.trie", tails=tails)
    assert report.bytes < tokens.size * 2.2 + (1 << 20)  # 16 bits a token, and the alphabet
    with flashtrie.open(tmp_path / "out.trie") as opened:
        ids = opened.lookup(tokens.tolist())
        assert sorted(ids.tolist()) == list(range(300))
        assert opened.keyword(int(ids[7])).tolist() == tokens[7].tolist()


def test_16_one_token_too_many(tmp_path):
    rows = [[1]] * 5 + [[7] * 4096, [7] * 4097]
    source = write_parquet(tmp_path / "a.parquet", rows, row_group_size=4)
    with pytest.raises(InputError) as caught:
        flashtrie.build([source], tmp_path / "out.trie")
    assert str(caught.value) == (
        f"{source}, row group 1, row 6: the keyword has 4097 tokens, and 4096 is the most"
    )
    assert not (tmp_path / "out.trie").exists()


def test_17_a_root_of_two_million_children(tmp_path):
    """All of them leaves, and a few with a child."""
    tokens = np.random.default_rng(0).permutation(2_000_000).reshape(-1, 1)
    write_matrix(tmp_path / "a.parquet", tokens)
    write_matrix(tmp_path / "b.parquet", np.concatenate([tokens[:1000], tokens[:1000] + 1], axis=1))
    found = trie("build", tmp_path, "-o", tmp_path / "out.trie", "--quiet", "--json")
    assert found.code == 0
    assert found.json["keywords"] == 2_001_000
    # The alphabet apart, a bit for each child and three more.
    assert found.json["bits_per_keyword"] < 5
    with flashtrie.open(tmp_path / "out.trie") as opened:
        flat = np.arange(2_000_000, dtype=np.uint32)
        ids = opened.lookup_flat(flat, np.arange(len(flat) + 1))
        assert np.array_equal(np.sort(ids), np.arange(2_000_000))
        first = int(tokens[0, 0])
        assert opened.lookup([[first, first + 1], [first, first]]).tolist()[1] == -1


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("nodes", [63, 64, 65, 511, 512, 513])
def test_17_levels_about_a_word_and_two_threads(
    build_trie: BuildTrie, tails: str, nodes: int
) -> None:
    """Each of the nodes has a child and a tail behind it, so that all bitmaps have this length."""
    rows: list[tuple[int, ...]] = [(i, i % 3, i, 5, i % 7) for i in range(nodes)]
    rows += [(i, 4) for i in range(nodes)]
    rows += [(i,) for i in range(0, nodes, 2)]
    with build_trie(rows, list(range(len(rows))), tails=tails, threads=2, shards=2) as opened:
        assert_is(opened, rows)
        with build_trie(rows[::-1], list(range(len(rows)))[::-1], tails=tails, threads=1) as other:
            assert digest(opened) == digest(other)


@pytest.mark.parametrize("tails", TAILS)
def test_17_a_chain_without_branching(build_trie, tails):
    """Each prefix a keyword, and the chain alone."""
    chain = tuple(range(300))
    rows = [chain[:n] for n in range(1, 301)]
    with build_trie(rows, tails=tails, threads=2) as opened:
        assert_is(opened, rows)
        assert opened.artifact.header.nodes == 300
    with build_trie([chain, chain[:150]], tails=tails, threads=2) as opened:
        assert_is(opened, [chain[:150], chain])


@pytest.mark.parametrize("tails", TAILS)
def test_18_token_0(tmp_path, tails):
    rows = [[0], [0, 0], [0, 0, 0, 0, 0], [5, 0, 0, 0], [5, 5, 0]]
    write_parquet(tmp_path / "a.parquet", rows)
    flashtrie.build([tmp_path / "a.parquet"], tmp_path / "out.trie", tails=tails)
    found = trie("dump", tmp_path / "out.trie", "--quiet")
    assert found.code == 0
    dumped = [line.split("\t")[1] for line in found.stdout.splitlines()]
    assert sorted(dumped) == sorted(",".join(map(str, row)) for row in rows)
    with flashtrie.open(tmp_path / "out.trie") as opened:
        assert opened.lookup([[0, 0, 0], [5], [5, 0], [5, 5]]).tolist() == [-1] * 4


@pytest.mark.parametrize("tokens", [1, 2, 65, 70_000])
def test_only_keywords_of_one_token(build_trie, tokens):
    rows = [(3 * i,) for i in range(tokens)]
    with build_trie(rows + rows[: tokens // 2], threads=2) as opened:
        assert_is(opened, rows)
        assert opened.artifact.header.levels == opened.artifact.header.max_length == 1


def assert_is(opened: Trie, rows: Sequence[tuple[int, ...]]) -> None:
    """The trie holds exactly these keywords."""
    distinct = sorted(set(rows))
    assert sorted(tuple(keyword.tolist()) for keyword in opened) == distinct
    ids = opened.lookup(distinct).tolist()
    assert sorted(ids) == list(range(len(distinct)))
    assert [tuple(opened.keyword(i).tolist()) for i in ids] == distinct
    longer = [(*row, row[-1]) for row in distinct]
    known = set(rows)
    assert [i >= 0 for i in opened.lookup(longer)] == [row in known for row in longer]


def digest(opened: Trie) -> str:
    return hashlib.sha256(Path(opened.artifact.path).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows with values in one file, and in 1 and 7 files in the other order."""
    folder = tmp_path_factory.mktemp("shards")
    tokens = power_law(600_000, 4)
    tokens[:, 2:][np.random.default_rng(1).random(len(tokens)) < 0.3] = [8, 9]
    values = np.random.default_rng(2).integers(-5, 1000, len(tokens))
    table = pq.read_table(write_matrix(folder / "all.parquet", tokens, values))
    for count, order in product((1, 7), ("forth", "back")):
        (folder / f"{count}-{order}").mkdir()
        rows = table if order == "forth" else table.take(np.arange(len(tokens))[::-1])
        for i in range(count):
            bounds = [len(tokens) * j // count for j in (i, i + 1)]
            part = rows.slice(bounds[0], bounds[1] - bounds[0])
            # part-2 comes before part-10, and row groups are cut elsewhere each time.
            path = folder / f"{count}-{order}" / f"part-{9 + i}.parquet"
            pq.write_table(part, path, row_group_size=50_000 + 9_999 * i)
    return folder


def ways() -> Iterator[tuple[int, str, int, str]]:
    """Each count of threads in little memory and in much, with shards and order changing."""
    for i, (threads, memory) in enumerate(product((1, 2, 4), ("least", "4GiB"))):
        yield threads, memory, (1, 7)[(i + i // 2) % 2], ("forth", "back")[i // 3]


def test_9_one_artifact_whatever_the_way(shards, tmp_path):
    digests = {}
    for threads, memory, count, order in ways():
        source, output = shards / f"{count}-{order}", tmp_path / "out.trie"
        words = [source, "-o", output, "--values", "value", "--threads", str(threads)]
        if memory == "least":
            memory = f"{least_memory(*words)}MiB"
        found = run("build", *words, "--memory", memory, "--force", "--quiet", "--json")
        assert found.code == 0, found.stdout
        key = (threads, memory, count, order)
        digests[key] = (
            hashlib.sha256(output.read_bytes()).hexdigest(),
            found.json["conflicts"],
            found.json["duplicates"],
        )
    assert len(set(digests.values())) == 1, digests


def test_9_the_environment_has_no_part_in_it(tmp_path):
    source = write_matrix(tmp_path / "a.parquet", power_law(1000, 3))
    settings = environment(PYTHONHASHSEED="1", TZ="Asia/Tokyo", LC_ALL="C", LANG="C")
    run("build", source, "-o", tmp_path / "a.trie", "--quiet", env=settings)
    run("build", source, "-o", tmp_path / "b.trie", "--quiet", cwd=tmp_path)
    assert (tmp_path / "a.trie").read_bytes() == (tmp_path / "b.trie").read_bytes()
