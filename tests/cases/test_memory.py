"""Cases 25 and 4: builds stay within --memory, for key sets of any size and shape.

Resident memory is what the report says. A bound is missed where some array grows with the input;
these inputs are chosen so that each of those is large beside the memory given.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.conftest import environment, least_memory, power_law, run, write_matrix

MIB = 1 << 20
SLACK = 1.15


def build_within(source: Path, memory: int, *words: str, threads: int = 1) -> dict[str, Any]:
    """The report of a build, which has stayed within 15% above `memory`, in MiB."""
    options = ["--threads", str(threads), "--memory", f"{memory}MiB", "--force", "--quiet"]
    output = source.with_suffix(".trie")
    found = run("build", source, "-o", output, "--json", *options, *words)
    assert found.code == 0, found.stdout
    report: dict[str, Any] = found.json
    assert report["peak_rss_bytes"] <= SLACK * memory * MIB
    return report


def test_25_too_little_says_the_least_that_would_do(tmp_path):
    """In memory a build of these rows takes more; a MiB less than the least is refused."""
    source = write_matrix(tmp_path / "keywords.parquet", power_law(1_000_000, 4))
    words = [source, "-o", tmp_path / "out.trie", "--threads", "2"]
    least = least_memory(*words)
    found = run("build", *words, "--memory", f"{least - 1}MiB", "--quiet")
    assert found.code == 2
    assert found.stderr.startswith("error: --memory: the build does not fit")
    assert f"{least - 1} MiB for 1,000,000 rows of 4,000,000 tokens" in found.stderr
    assert f"Give at least {least} MiB" in found.stderr
    assert not (tmp_path / "out.trie").exists()
    build_within(source, least, threads=2)


@pytest.mark.parametrize("rows", [1_200_000, 4_800_000])
def test_25_any_number_of_rows(tmp_path, rows):
    """Four times the rows in the same memory: the larger set has more bytes than the memory."""
    source = write_matrix(tmp_path / "keywords.parquet", power_law(rows, 4), compression="snappy")
    least = least_memory(source, "-o", tmp_path / "x.trie", "--threads", "1")
    report = build_within(source, least)
    assert report["rows"] == rows


def hot_keyword() -> np.ndarray[Any, Any]:
    """One keyword many times, which no border between ranges divides."""
    return np.tile([7, 8, 9], (12_000_000, 1))


def hot_tail() -> np.ndarray[Any, Any]:
    """One tail many times: every tail has to be told which it is."""
    tokens = np.empty((4_500_000, 5), np.int64)
    tokens[:, :2] = np.random.default_rng(0).integers(0, 1 << 16, (len(tokens), 2))
    tokens[:, 2:] = [7, 8, 9]
    return tokens


def long_keywords() -> np.ndarray[Any, Any]:
    """Few rows of many tokens: what is counted in rows is large in bytes."""
    return power_law(3500, 4000)


def many_small_ids() -> np.ndarray[Any, Any]:
    """Tokens all over the ids that are counted in a table."""
    return np.random.default_rng(0).integers(0, 1 << 24, (500_000, 4))


def many_large_ids() -> np.ndarray[Any, Any]:
    """Nearly every token is one of its own."""
    return np.random.default_rng(0).integers(0, 2**32 - 1, (500_000, 4))


@pytest.mark.parametrize(
    ("shape", "extra"),
    [
        (hot_keyword, 0),
        (hot_tail, 0),
        (long_keywords, 0),
        (many_small_ids, 128),
        (many_large_ids, 0),
    ],
    ids=lambda parameter: getattr(parameter, "__name__", ""),
)
def test_25_any_shape(
    tmp_path: Path, shape: Callable[[], np.ndarray[Any, Any]], extra: int
) -> None:
    """In the least memory, and `extra` MiB where the alphabet needs more."""
    source = write_matrix(tmp_path / "keywords.parquet", shape(), row_group_size=1 << 15)
    least = least_memory(source, "-o", tmp_path / "x.trie", "--threads", "1")
    build_within(source, least + extra, "--tails", "indexed")


def test_25_a_hot_keyword_with_values(tmp_path):
    """Rows that lose are counted alike in parts and in one."""
    values = np.random.default_rng(0).integers(-3, 1000, 3_000_000)
    tokens = np.tile([7, 8, 9], (len(values), 1))
    source = write_matrix(tmp_path / "keywords.parquet", tokens, values)
    least = least_memory(source, "-o", tmp_path / "x.trie", "--values", "value", "--threads", "1")
    for memory in (least, 2000):
        report = build_within(source, memory, "--values", "value")
        assert report["keywords"] == 1
        assert report["conflicts"] == np.count_nonzero(values != -3)


def test_25_default_threads_are_as_many_as_the_memory_is_for(tmp_path):
    """However many cores there are, a build that one thread could do is not refused."""
    source = write_matrix(tmp_path / "keywords.parquet", power_law(1000, 4))
    least = least_memory(source, "-o", tmp_path / "x.trie", "--threads", "1")
    found = run("build", source, "--memory", f"{least}MiB", "--dry-run", "--json", cwd=tmp_path)
    assert found.code == 0
    assert found.json["threads"] == 1
    found = run("build", source, "--memory", "64GiB", "--dry-run", "--json", cwd=tmp_path)
    assert found.json["threads"] >= 1


@pytest.mark.parametrize("mib", [500, 1500])
def test_25_less_memory_than_the_system_gives(tmp_path, mib, artifact):
    """The system says no at any place: one message, and nothing is left or lost.

    Address space is what can be limited without privileges; a build takes more of it than memory.
    """
    source = write_matrix(tmp_path / "keywords.parquet", power_law(300_000, 4))
    output = tmp_path / "out.trie"
    output.write_bytes(artifact)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB))

    words = ["build", source, "-o", output, "--threads", "1", "--force", "--quiet"]
    # Without it OpenBLAS waits for ever for threads that it could not start.
    found = run(*words, preexec_fn=limit, env=environment(OPENBLAS_NUM_THREADS="1"))
    assert found.code in (0, 2), found.stderr
    assert (output.read_bytes() == artifact) == bool(found.code)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keywords.parquet", "out.trie"]
    assert (mib == 1500) == (found.code == 0)
    if found.code:
        assert found.stderr.startswith("error: not enough memory")
        assert found.stderr.count("\n") == 1


def test_4_ids_far_apart_take_no_memory(tmp_path):
    ids = np.array([1, 65535, 65536, 65537, 2**21, 2**31 + 5, 2**32 - 2])
    rng = np.random.default_rng(0)
    tokens = np.concatenate(
        [ids.reshape(-1, 1) * [1, 0], rng.choice(ids, (20_000, 2)), [[65536, 65537], [65536, 1]]]
    )
    source = write_matrix(tmp_path / "keywords.parquet", tokens)
    found = run(
        *("build", source, "-o", tmp_path / "out.trie", "--memory", "1GiB", "--threads", "4"),
        *("--json", "--quiet"),
    )
    assert found.code == 0, found.stdout
    # A table of the ids below 2^24 for each thread would take 512 MiB.
    assert found.json["peak_rss_bytes"] < 512 * MIB
    known = [f"--tokens={a},{b}" for a, b in ((65536, 1), (65536, 65537), (2**32 - 2, 0))]
    found = run("lookup", tmp_path / "out.trie", "--json", "--quiet", *known, "--tokens=2,2")
    assert found.code == 1
    assert found.json["found"] == 3
    assert [row["key_id"] is None for row in found.json["results"]] == [False] * 3 + [True]
