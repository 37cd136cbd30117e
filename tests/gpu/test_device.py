"""Loading, tensors of others, memory, damage, verify and lookup on the GPU."""

from __future__ import annotations

import numpy as np
import pytest

from flashtrie.formats.errors import ArtifactError, ResourceError
from tests.gpu.conftest import assert_same
from tests.strategies import key_set, proposals

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def built(build_trie):
    rows = key_set("wide", 30_000)
    with build_trie(rows) as trie:
        yield trie, rows


def test_what_loading_reports(built):
    trie, _ = built
    report = trie.device.report
    assert report.bytes > trie.artifact.bytes - trie.artifact.header_bytes
    assert 0 < report.derived < report.bytes
    assert report.seconds > 0 and report.gigabytes_per_second > 0 and report.free > 0
    assert len(trie.device) == len(trie.trie)


def test_32_too_little_memory_is_said_before_anything_is_loaded(built, monkeypatch):
    from flashtrie.gpu import device, payload

    trie, _ = built
    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    monkeypatch.setattr(payload, "upload", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(ResourceError) as error:
        trie.trie.to_device()
    assert "1,000 are free" in str(error.value)
    need = device.device_bytes(trie.artifact) + device.KEPT_FREE
    assert f"it takes {need:,} bytes" in str(error.value)
    assert "--device cpu" in str(error.value)


def test_32_too_little_memory_for_a_search(built, monkeypatch):
    from flashtrie.gpu import search

    trie, rows = built
    monkeypatch.setattr(search, "_free_bytes", lambda: 1000)
    with pytest.raises(ResourceError, match="free"):
        trie.device.search(beam_width=77, **proposals(rows, 2, 9, tied=True))


def test_batches_in_parts_and_teams_that_take_turns(built, monkeypatch):
    from flashtrie.gpu import search

    trie, rows = built
    given = proposals(rows, 40, 60, tied=True)
    expected = trie.trie.search(beam_width=30, **given)
    for free in (1 << 19, 1 << 20, 1 << 22):
        monkeypatch.setattr(search, "_free_bytes", lambda free=free: free)
        assert_same(trie.search(beam_width=30, **given), expected)


@pytest.mark.hardware
def test_tensors_of_pytorch_are_used_where_they_are(built):
    torch = pytest.importorskip("torch")
    from flashtrie.gpu.inputs import on_device

    trie, rows = built
    given = proposals(rows, 3, 50, tied=False)
    expected = trie.trie.search(beam_width=20, **given)
    tensors = {name: torch.from_numpy(array).cuda() for name, array in given.items()}
    assert on_device(tensors["tokens"]).data.ptr == tensors["tokens"].data_ptr()
    torch.cuda.synchronize()
    assert_same(trie.search(beam_width=20, **tensors), expected)
    result = trie.device.search_on_device(beam_width=20, **tensors)
    scores = torch.from_dlpack(result.scores)
    assert scores.data_ptr() == result.scores.data.ptr
    assert result.to_host().scores.tolist() == expected.scores.tolist()
    half = torch.from_numpy(given["logprobs"]).half().cuda()
    expected = trie.trie.search(given["tokens"], half.cpu().numpy(), beam_width=20)
    assert_same(trie.search(tensors["tokens"], half, beam_width=20), expected)


def test_what_is_behind_the_results_is_defined(built):
    trie, rows = built
    result = trie.device.search_on_device(beam_width=400, **proposals(rows, 3, 2, tied=True))
    for q, count in enumerate(result.counts.get().tolist()):
        assert count < 400
        assert (result.key_ids[q, count:].get() == -1).all()
        assert (result.scores[q, count:].get() == -np.inf).all()
        assert (result.lengths[q, count:].get() == 0).all()
        assert (result.tokens[q, count:].get() == 2**32 - 1).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_ends_that_cannot_be_are_closed(built, wrong):
    """Without waiting nothing is reported; such a step makes no keywords, and harms no other."""
    trie, rows = built
    given = proposals(rows, 2, 30, tied=False)
    ends = given["end_logprobs"]
    for step in range(1, ends.shape[1]):
        given["end_logprobs"] = np.where(np.arange(ends.shape[1]) == step, -np.inf, ends)
        expected = trie.trie.search(beam_width=30, **given)
        given["end_logprobs"] = np.where(np.arange(ends.shape[1]) == step, wrong, ends)
        result = trie.device.search_on_device(beam_width=30, **given).to_host()
        assert_same(result, expected)


def test_lookups(built):
    trie, rows = built
    tokens, offsets = trie.trie.keywords(0, len(trie.trie))
    assert (trie.device.lookup_flat(tokens, offsets) == np.arange(len(trie.trie))).all()
    mixed = np.random.default_rng(0).permutation(tokens).astype(np.int64) - 1
    expected = trie.trie.lookup_flat(mixed, offsets)
    assert (trie.device.lookup_flat(mixed, offsets) == expected).all()


def test_a_damaged_file_is_not_loaded(build_trie, tmp_path):
    import flashtrie

    with build_trie(key_set("narrow", 3000)) as trie:
        content = bytearray(open(trie.artifact.path, "rb").read())
        for section in ("label_low", "inner", "store_low", "chunk_digests"):
            at = trie.artifact.offsets[section] + 3
            content[at] ^= 16
            path = tmp_path / "damaged.trie"
            path.write_bytes(content)
            content[at] ^= 16
            with flashtrie.open(path) as damaged, pytest.raises(ArtifactError, match=section):
                damaged.to_device()


def test_20_a_wrong_payload_is_survived(build_trie):
    """Any bits, anywhere: wrong answers, but no fault. compute-sanitizer runs this, too."""
    import cupy

    rows = key_set("narrow", 4000)
    rng = np.random.default_rng(0)
    for tails in ("implicit", "indexed"):
        with build_trie(rows, tails=tails) as trie:
            payload = trie.device.payload()
            right = payload.copy()
            size = len(payload) - 256
            for flips in (1, 30, 3000, size):
                for _ in range(4):
                    at = cupy.asarray(rng.integers(0, size, flips))
                    noise = cupy.asarray(rng.integers(0, 256, flips), np.uint8)
                    payload[at] = noise
                    given = proposals(rows, 4, 60, tied=True, seed=flips)
                    trie.device.search_on_device(beam_width=40, **given)
                    trie.device.lookup_flat(np.arange(100), np.arange(0, 101, 4))
                    cupy.cuda.Device().synchronize()
                    payload[:] = right
            given = proposals(rows, 4, 60, tied=True)
            assert_same(
                trie.search(beam_width=40, **given), trie.trie.search(beam_width=40, **given)
            )


def test_verify_on_the_device(build_trie):
    from flashtrie.gpu.verify import checks_of

    for tails in ("implicit", "indexed"):
        with build_trie(key_set("wide", 20_000), tails=tails) as trie:
            names = ["checksums", "bitmaps", "directories", "labels", "tails"]
            checks = checks_of(trie.artifact, trie.device)
            assert [(check.name, check.ok) for check in checks] == [(n, True) for n in names]
            # What derived arrays were made of goes wrong behind their back.
            for section, wrong in (
                ("inner_rank", {"checksums", "directories"}),
                ("label_low", {"checksums", "labels"}),
                ("store_end", {"checksums", "tails"}),
            ):
                start = trie.artifact.offsets[section] - trie.artifact.header_bytes
                size = trie.artifact.lengths[section] * 4
                part = trie.device.payload()[start : start + size]
                before = part.copy()
                part[:] = 0
                checks = checks_of(trie.artifact, trie.device)
                part[:] = before
                assert wrong <= {check.name for check in checks if not check.ok}, section


def test_a_trie_that_looks_up_on_the_device(built):
    from flashtrie.gpu.verify import LookupsOnDevice, check_on_device

    trie, rows = built
    both, checks = check_on_device(trie.trie)
    assert isinstance(both, LookupsOnDevice) and all(check.ok for check in checks)
    assert len(both) == len(trie.trie)
    assert both.keyword(3).tolist() == trie.trie.keyword(3).tolist()
    assert both.lookup_flat(np.array(rows[0]), np.array([0, len(rows[0])])).tolist() == (
        trie.trie.lookup([rows[0]]).tolist()
    )


def test_what_a_search_reads(built):
    """Each sector once: more with more beams, and never more than there is."""
    from flashtrie.cpu.query_files import Queries
    from flashtrie.gpu.traffic import Traffic

    trie, rows = built
    traffic = Traffic(trie.device)
    assert 1e8 < traffic.sectors_per_second < 1e13
    parts = [Queries(**proposals(rows, 2, 100, tied=False, seed=seed)) for seed in range(2)]
    few, many = (traffic.bytes_touched(parts, beam_width) for beam_width in (2, 200))
    assert 32 * 100 < few < many < trie.device.report.bytes + 1e6
    assert trie.device.searcher.changes == {}
