"""The builder against the plain reference builder: the same bytes, whatever the way there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashtrie.builder import build as build_module
from flashtrie.builder import pipeline, plan
from flashtrie.builder.build import build
from tests.conftest import write_parquet
from tests.reference_builder import reference_artifact

TOKENS = st.one_of(
    st.integers(0, 3),
    st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 65537, 2**21, 2**31 + 5, 2**32 - 2]),
    st.integers(0, 2**32 - 2),
)
KEYWORD = st.lists(TOKENS, min_size=1, max_size=12)


@st.composite
def key_sets(draw):
    """Keywords with prefixes, shared tails and repetitions among them."""
    keywords = draw(st.lists(KEYWORD, min_size=1, max_size=40))
    for _ in range(draw(st.integers(0, 20))):
        a, b = draw(st.sampled_from(keywords)), draw(st.sampled_from(keywords))
        cut = draw(st.integers(0, len(a)))
        keywords.append((a[:cut] + b)[:20])
    return keywords


def built(folder, keywords, values=None, shards=1, **options):
    """The bytes of an artifact built from rows in `shards` files."""
    inputs = [
        write_parquet(
            folder / f"part-{shard}.parquet",
            keywords[shard::shards],
            None if values is None else values[shard::shards],
            row_group_size=7,
        )
        for shard in range(min(shards, len(keywords)))
    ]
    if values is not None:
        options["values"] = "value"
    build(inputs, folder / "out.trie", force=True, **options)
    return (folder / "out.trie").read_bytes()


def reference(folder, keywords, values=None, **options):
    rows = [(tuple(k), None if values is None else values[i]) for i, k in enumerate(keywords)]
    reference_artifact(folder / "reference.trie", rows, **options)
    return (folder / "reference.trie").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("build")


@pytest.mark.parametrize("tails", ["auto", "implicit", "indexed"])
@settings(max_examples=25)
@given(keywords=key_sets(), low_bits=st.sampled_from([None, 4, 16]), data=st.data())
def test_bytes_equal_the_reference(folder, tails, keywords, low_bits, data):
    (folder / "reference.trie").unlink(missing_ok=True)
    values = data.draw(
        st.none()
        | st.lists(
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
            min_size=len(keywords),
            max_size=len(keywords),
        )
    )
    options = {"low_bits": low_bits, "tails": tails}
    assert built(folder, keywords, values, **options) == reference(
        folder, keywords, values, **options
    )


def power_law_keywords(rows, seed=0):
    """Rows with hot tokens, a long shared prefix, duplicates, and lengths up to 40."""
    rng = np.random.default_rng(seed)
    keywords = []
    for _ in range(rows):
        length = int(rng.integers(1, 9)) if rng.random() < 0.98 else int(rng.integers(30, 41))
        tokens = (rng.pareto(0.7, length) * 3).astype(np.int64) % 100_000
        prefix = [5] * 25 if rng.random() < 0.2 else []
        keywords.append(prefix + tokens.tolist())
    return keywords + keywords[: rows // 10]


@pytest.mark.parametrize("tails", ["implicit", "indexed"])
def test_bytes_do_not_depend_on_threads_ranges_shards_or_spilling(tmp_path, monkeypatch, tails):
    keywords = power_law_keywords(6000)
    values = [hash(tuple(k)) % 1000 - 500 for k in keywords]
    expected = reference(tmp_path, keywords, values, tails=tails)
    monkeypatch.setattr(pipeline, "_BATCH_ROWS", 1000)
    for threads in (1, 2, 4):
        for cache_rows, spill in ((1 << 17, False), (400, False), (400, True), (1 << 17, True)):
            monkeypatch.setattr(plan, "_CACHE_ROWS", cache_rows)
            monkeypatch.setattr(plan, "_SPILLED_RANGE_ROWS", cache_rows)
            monkeypatch.setattr(plan, "_fits", lambda held, memory, s=spill: not s)
            for shards in (1, 7):
                order = 1 if shards == 1 else -1
                data = built(
                    tmp_path,
                    keywords[::order],
                    values[::order],
                    shards,
                    tails=tails,
                    threads=threads,
                    tmp_dir=tmp_path,
                )
                assert data == expected


@pytest.mark.parametrize("tails", ["implicit", "indexed"])
def test_bytes_do_not_depend_on_ranges_that_come_in_parts(tmp_path, monkeypatch, tails):
    """One keyword and one tail take a range each, many times what a range may take."""
    keywords = power_law_keywords(1000) + [[1, 2, 3]] * 3000
    keywords += [[i, 7, 8, 9] for i in range(2000)] + [[i, 6, 7, 8, 9] for i in range(300)]
    values = [i % 5 for i in range(len(keywords))]
    expected = reference(tmp_path, keywords, values, tails=tails)
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)

    def small(*args):
        return replace(plan.plan_build(*args), range_bytes=20_000, buffer_bytes=50_000)

    monkeypatch.setattr(build_module, "plan_build", small)
    data = built(tmp_path, keywords, values, 2, tails=tails, threads=2, tmp_dir=tmp_path)
    assert data == expected
    report = build(
        [tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"],
        tmp_path / "again.trie",
        values="value",
    )
    monkeypatch.undo()
    whole = build(
        [tmp_path / "part-0.parquet", tmp_path / "part-1.parquet"],
        tmp_path / "whole.trie",
        values="value",
    )
    assert (report.conflicts, report.duplicates) == (whole.conflicts, whole.duplicates)
    assert report.conflicts >= 2400


def test_scratch_files_once_the_alphabet_is_known(tmp_path, monkeypatch):
    """What was planned for memory, and counted, is scattered from there to files."""
    keywords = power_law_keywords(2000)
    expected = reference(tmp_path, keywords)
    answers = iter([True, False])
    monkeypatch.setattr(plan, "_fits", lambda held, memory: next(answers))
    monkeypatch.setattr(pipeline, "_BATCH_ROWS", 100)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    seen: set[tuple[str, str]] = set()

    def progress(phase, done, total, unit):
        seen.update((phase, folder.name) for folder in scratch.iterdir())

    assert built(tmp_path, keywords, tmp_dir=scratch, progress=progress) == expected
    assert {phase for phase, _ in seen} == {"scatter", "sort"}
    assert len({name for _, name in seen}) == 1
    assert list(scratch.iterdir()) == []
