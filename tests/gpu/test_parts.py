"""Batches of which the input does not fit the device go there in parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flashtrie.formats.errors import InputError, ResourceError
from flashtrie.formats.search import SearchStats
from tests.gpu.conftest import assert_same
from tests.strategies import key_set, proposals

pytestmark = pytest.mark.gpu

ROWS = key_set("narrow", 2000)
GIVEN = proposals(ROWS, 40, 700, tied=True)
MIB = 1 << 20


@pytest.fixture(scope="module")
def built(build_trie):
    with build_trie(ROWS) as trie:
        yield trie


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each array that goes to the device."""
    import cupy

    found: list[int] = []
    asarray = cupy.asarray

    def recorded(array: Any, *given: Any, **options: Any) -> Any:
        if isinstance(array, np.ndarray):
            found.append(array.nbytes)
        return asarray(array, *given, **options)

    monkeypatch.setattr(cupy, "asarray", recorded)
    return found


def _free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    from flashtrie.gpu import device, search

    for module, name in ((search, "_free_bytes"), (device, "free_bytes")):
        monkeypatch.setattr(module, name, lambda: free)


@pytest.mark.parametrize("top_k", [None, 30])
def test_proposals(built, moved, monkeypatch, top_k):
    options = {"beam_width": 30, "top_k": top_k, "length_penalty": 0.5}
    stats, in_parts = SearchStats(), SearchStats()
    expected = built.device.search(**GIVEN, **options, stats=stats)
    assert max(moved) == GIVEN["tokens"].nbytes
    _free(monkeypatch, MIB)
    moved.clear()
    assert_same(built.device.search(**GIVEN, **options, stats=in_parts), expected)
    assert 0 < max(moved) <= MIB / 4
    assert in_parts.active_beams.tolist() == stats.active_beams.tolist()
    assert in_parts.candidates.shape == stats.candidates.shape
    moved.clear()
    ends = {**GIVEN, "logprobs": GIVEN["logprobs"].astype(np.float64), "end_logprobs": None}
    expected = built.trie.search(**ends, **options)
    assert_same(built.device.search(**ends, **options), expected)
    assert max(moved) <= MIB / 4


def test_what_is_on_the_device_is_searched_at_once(built, moved, monkeypatch):
    """Its results fit, and its input is there already."""
    import cupy

    on_device = {
        "tokens": cupy.asarray(GIVEN["tokens"]),
        "logprobs": cupy.asarray(GIVEN["logprobs"]),
    }
    expected = built.device.search(**on_device, beam_width=30)
    searched: list[int] = []
    part = built.device.searcher._search_part

    def recorded(given: Any, *rest: Any) -> Any:
        searched.append(len(given.tokens))
        return part(given, *rest)

    monkeypatch.setattr(built.device.searcher, "_search_part", recorded)
    _free(monkeypatch, MIB)
    assert_same(built.device.search(**on_device, beam_width=30), expected)
    assert searched == [40]
    searched.clear()
    assert_same(built.device.search(**on_device, beam_width=30, top_k=700), expected)
    assert searched == [40]
    searched.clear()
    sliced = {name: array[:, :, ::2] for name, array in on_device.items()}
    expected = built.trie.search(**{name: a.get() for name, a in sliced.items()}, beam_width=30)
    assert_same(built.device.search(**sliced, beam_width=30), expected)
    assert len(searched) > 1


def _logits(dtype: Any, columns: int = 20_100) -> Any:
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((5, 3, columns)) * 2
    logits[:, :, :64] += 4
    return logits.astype(dtype)


@pytest.mark.parametrize("free", [MIB, 4 * MIB])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_logits(built, moved, monkeypatch, dtype, free):
    """By queries, and by steps where those of a query do not fit."""
    import cupy

    logits = _logits(dtype)
    expected = built.trie.search_logits(logits.astype(np.float32), beam_width=30, top_k=100)
    assert_same(built.device.search_logits(logits, beam_width=30, top_k=100), expected)
    _free(monkeypatch, free)
    moved.clear()
    assert_same(built.device.search_logits(logits, beam_width=30, top_k=100), expected)
    assert max(moved) <= max(logits[0, 0].nbytes, free / 8) < logits.nbytes
    half = logits[:, ::2]
    expected = built.trie.search_logits(half.astype(np.float32), beam_width=30, top_k=100)
    assert_same(built.device.search_logits(half, beam_width=30, top_k=100), expected)
    if dtype == ml_dtypes.bfloat16:
        return
    there = cupy.asarray(logits)
    moved.clear()
    for given in (there[:, ::2], cupy.asarray(np.asfortranarray(half))):
        assert_same(built.device.search_logits(given, beam_width=30, top_k=100), expected)


@pytest.mark.parametrize("free", [MIB, 16 * MIB])
def test_logits_of_float64(moved, monkeypatch, free):
    """Whose copies in other types are made of a part alone."""
    from flashtrie.gpu.logits import logit_proposals

    logits = _logits(np.float64)
    whole = logit_proposals(logits, 20_100, 100)
    moved.clear()
    parts = logit_proposals(logits, 20_100, 100, room=free // 8)
    assert max(moved) <= max(logits[0, 0].nbytes, free / 8) < logits.nbytes
    for name in ("tokens", "logprobs"):
        assert getattr(parts, name).get().tobytes() == getattr(whole, name).get().tobytes()


def test_errors_name_the_query_of_the_batch(built, monkeypatch):
    _free(monkeypatch, MIB)
    given = {name: array.copy() for name, array in GIVEN.items()}
    given["logprobs"][37, 4, 5] = np.nan
    given["tokens"][37, 4, 5] = ROWS[0][0]
    with pytest.raises(InputError, match="query 37, step 5, position 5"):
        built.device.search(**given, beam_width=30)
    given = {**GIVEN, "end_logprobs": GIVEN["end_logprobs"].copy()}
    given["end_logprobs"][38, 2] = np.inf
    with pytest.raises(InputError, match="query 38, length 2"):
        built.device.search(**given, beam_width=30)
    logits = np.tile(_logits(np.float32)[:, :, :3000], (40, 1, 1))
    logits[150, 2, 77] = np.inf
    _free(monkeypatch, 2 * MIB)
    with pytest.raises(InputError, match="query 150, step 3, column 77"):
        built.device.search_logits(logits, beam_width=100, top_k=1000)


def test_no_queries(built, monkeypatch):
    _free(monkeypatch, MIB)
    none = {name: array[:0] for name, array in GIVEN.items()}
    stats = SearchStats()
    result = built.device.search(**none, beam_width=30, stats=stats)
    assert result.offsets.tolist() == [0] and stats.candidates.shape == (0, 6)
    assert len(built.device.search_logits(_logits(np.float32)[:0]).key_ids) == 0


def test_memory_that_others_took_is_no_internal_error(built, monkeypatch):
    """Also where nothing is left to be divided: results that stay on the device."""
    import cupy

    class OutOfMemoryError(MemoryError):
        __module__ = "cupy.cuda.memory"

    def empty(*_: Any) -> Any:
        raise OutOfMemoryError("Out of memory allocating 1,000 bytes")

    monkeypatch.setattr(cupy, "empty", empty)
    logits = _logits(np.float32)
    for search in (
        lambda: built.device.search(**GIVEN, beam_width=33),
        lambda: built.device.search_on_device(**GIVEN, beam_width=33),
        lambda: built.device.search_logits(logits, beam_width=33),
        lambda: built.device.lookup_flat(np.array([1]), np.array([0, 1])),
    ):
        with pytest.raises(ResourceError, match="not enough GPU memory") as error:
            search()
        assert "1,000 bytes" in str(error.value) and "--device cpu" in str(error.value)
