"""The GPU against the CPU engine: sizes, batches, ties, streams, forced rare paths, limits."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.kernels.variants import VARIANTS

from tests.gpu.conftest import FORCED, assert_same
from tests.strategies import LOW_BITS, TAILS, key_set, proposals

pytestmark = pytest.mark.gpu

BEAM_WIDTHS = (1, 10, 100, 1000, 4096)
WIDTHS = (1, 32, 1000)
BATCHES = (1, 8, 64)


@pytest.fixture(scope="module", params=["wide", "narrow"])
def built(request, build_trie):
    rows = key_set(request.param, 60_000)
    with build_trie(rows, list(range(len(rows)))) as trie:
        yield trie, rows


@pytest.mark.hardware
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_beam_width_and_batch(built, width, tied):
    trie, rows = built
    given = proposals(rows, max(BATCHES), width, tied=tied)
    for beam_width in BEAM_WIDTHS:
        expected = trie.trie.search(beam_width=beam_width, **given)
        assert_same(trie.device.search(beam_width=beam_width, **given), expected)
        for batch in BATCHES[:-1]:
            part = {name: array[-batch:] for name, array in given.items()}
            expected = trie.trie.search(beam_width=beam_width, **part)
            assert_same(trie.search(beam_width=beam_width, **part), expected)


@pytest.mark.parametrize("variant", FORCED)
@pytest.mark.parametrize("group", [None, 1, pytest.param(3, marks=pytest.mark.hardware)])
def test_rare_paths(built, variant, group):
    trie, rows = built
    searcher = trie.device.searcher
    searcher.changes, searcher.most_group = FORCED[variant], group
    try:
        for width, beam_width, tied in [(40, 7, True), (200, 64, True), (200, 60, False)]:
            given = proposals(rows, 5, width, tied=tied, seed=width)
            for top_k in (None, 20):
                options = {"beam_width": beam_width, "top_k": top_k, "length_penalty": 0.7}
                expected = trie.trie.search(**given, **options)
                assert_same(trie.search(**given, **options), expected)
    finally:
        searcher.changes, searcher.most_group = {}, None


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_variants_for_measurements(built, variant):
    trie, rows = built
    searcher = trie.device.searcher
    searcher.changes = variant.changes
    try:
        for width, beam_width, tied in [(40, 7, True), (300, 100, False)]:
            given = proposals(rows, 2, width, tied=tied)
            expected = trie.trie.search(beam_width=beam_width, **given)
            assert_same(trie.device.search(beam_width=beam_width, **given), expected)
    finally:
        searcher.changes = {}


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("low_bits", LOW_BITS)
def test_every_layout(build_trie, tails, low_bits):
    rows = key_set("narrow", 5000, seed=3) + [(7,) * n for n in (1, 2, 900)]
    given = proposals(rows, 9, 150, tied=True)
    with build_trie(rows, tails=tails, low_bits=low_bits) as trie:
        for beam_width in (3, 90):
            expected = trie.trie.search(beam_width=beam_width, **given)
            assert_same(trie.search(beam_width=beam_width, **given), expected)


@pytest.mark.hardware
def test_two_streams_at_once(built):
    import cupy

    trie, rows = built
    given = [proposals(rows, 16, 300, tied=False, seed=seed) for seed in range(2)]
    expected = [trie.trie.search(beam_width=200, **q) for q in given]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in given]
    cupy.cuda.Device().synchronize()
    for _ in range(5):
        results = []
        for stream, q in zip(streams, given, strict=True):
            with stream:
                results.append(trie.device.search_on_device(beam_width=200, **q))
        for stream, result, wanted in zip(streams, results, expected, strict=True):
            with stream:
                assert_same(result.to_host(), wanted)


def test_threads_share_a_device_trie(built):
    trie, rows = built
    given = proposals(rows, 4, 100, tied=True)
    expected = trie.trie.search(beam_width=50, **given)
    failures: list[BaseException] = []

    def search() -> None:
        try:
            for _ in range(5):
                assert_same(trie.device.search(beam_width=50, **given), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_wide_proposals_and_beams(build_trie):
    """Sets that are in L2, and beams of several thousand, some of them in tails."""
    rng = np.random.default_rng(1)
    rows = [(int(a), int(b)) for a, b in rng.integers(0, 6000, (40_000, 2))]
    longer = [(int(a), 1, 2, 3) for a in rng.integers(6000, 9000, 2000)]
    tokens = rng.permuted(np.tile(np.arange(9000), (2, 4, 1)), axis=2)
    logprobs = -np.round(rng.gamma(2.0, 2.0, tokens.shape), 1).astype(np.float32)
    with build_trie([*rows, *longer]) as trie:
        for beam_width in (20, 3000, 9000, 65_536):
            expected = trie.trie.search(tokens, logprobs, beam_width=beam_width)
            assert_same(trie.search(tokens, logprobs, beam_width=beam_width), expected)
            expected = trie.trie.search(
                tokens[:, :, :3000], logprobs[:, :, :3000], beam_width=beam_width
            )
            found = trie.search(tokens[:, :, :3000], logprobs[:, :, :3000], beam_width=beam_width)
            assert_same(found, expected)


@pytest.mark.hardware
def test_31_a_node_with_ten_million_children(tmp_path, kernels):
    """Its proposals are searched for, in one wave and in two."""
    import flashtrie

    children = 10_000_000
    flat = np.full((children + 100, 2), 5, np.uint32)
    flat[:children, 1] = np.arange(children)
    flat[children:, 0], flat[children:, 1] = 6, np.arange(100)
    offsets = np.arange(0, flat.size + 1, 2, dtype=np.int32)
    tokens = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat.ravel()))
    pq.write_table(pa.table({"tokens": tokens}), tmp_path / "rows.parquet")
    flashtrie.build([tmp_path / "rows.parquet"], tmp_path / "rows.trie")
    rng = np.random.default_rng(0)
    proposed = np.zeros((3, 2, 64), np.int64)
    proposed[:, 0, :2] = [5, 6]
    proposed[:, 0, 2:] = -1
    proposed[:, 1] = rng.integers(0, children + 1000, (3, 64))
    proposed[:, 1, 0] = 7  # of both
    logprobs = -np.sort(rng.random(proposed.shape), axis=2).astype(np.float32)
    with flashtrie.open(tmp_path / "rows.trie") as trie:
        device = trie.to_device()
        for changes in ({}, FORCED["waves"]):
            device.searcher.changes = changes
            for beam_width in (1, 1000):
                expected = trie.search(proposed, logprobs, beam_width=beam_width)
                assert_same(device.search(proposed, logprobs, beam_width=beam_width), expected)
                assert beam_width == 1 or len(expected.key_ids) > 150
