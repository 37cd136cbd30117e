"""Top-p alone on the GPU, which has methods of its own, and the best of a softmax."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flashtrie import sampling
from flashtrie.formats.errors import InputError
from flashtrie.formats.search import ABSENT
from tests.sampling import oracle
from tests.sampling.conftest import Device, has_gpu
from tests.sampling.test_properties import KINDS, make_row

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")]

METHODS: list[tuple[str, ...]] = [("hold",), ("mass",)]
P = [0.9, 0.5, 1e-9, 0.999, 1 - 1e-9, 1.0, 0.0, 0.9, 0.3, 0.8]
TEMPERATURES = [1.0, 0.7, 1.0, 2.0, 0.1, 1.0, 1.0, 0.0, 1e-3, 1.0]


@pytest.fixture(params=METHODS, ids=lambda methods: methods[0])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    from flashtrie.gpu import sampling as on_gpu

    monkeypatch.setattr(on_gpu, "TOP_P_METHODS", request.param)
    return request.param


def check(rows: np.ndarray, p: list[float], temperature: list[float], ties: str) -> None:
    """All three results of a batch against the oracle, and the tokens against the CPU."""
    device = Device("cuda")
    logits = device.put(rows)
    given = {
        "top_p": device.put(np.array(p)),
        "temperature": device.put(np.array(temperature)),
        "ties": ties,
        "check": False,
    }
    found = sampling.candidates(logits, **given, in_order=True)
    masked = device.get(sampling.mask(logits, **given))
    drawn = sampling.sample(logits, 7, **given)
    in_place = device.put(rows.copy())
    sampling.mask(in_place, **given, out=in_place)
    assert np.array_equal(_bits(device.get(in_place)), _bits(masked))
    indices, counts = device.get(found.indices), device.get(found.counts)
    log_mass, tokens = device.get(found.log_mass), device.get(drawn.tokens)
    on_cpu = sampling.sample(
        rows, 7, top_p=np.array(p), temperature=np.array(temperature), ties=ties, check=False
    )
    for r, row in enumerate(rows):
        expected = oracle.select(row, 0, p[r], temperature[r], ties)
        n = int(counts[r])
        got = indices[r, :n]
        note = (r, p[r], temperature[r], ties, n, len(expected.order))
        assert oracle.agrees(expected, got), note
        kept = np.full_like(row, -np.inf)
        kept[got] = row[got]
        assert np.array_equal(_bits(masked[r]), _bits(kept)), note
        if n == 0:
            assert tokens[r] == -1
            continue
        assert int(tokens[r]) in set(got.tolist()), note
        if n == len(expected.order):
            assert list(got) == list(expected.order), note
            assert log_mass[r] == pytest.approx(expected.log_mass, abs=1e-6), note
            assert tokens[r] == on_cpu.tokens[r], note
            assert device.get(drawn.logprobs)[r] == pytest.approx(on_cpu.logprobs[r], abs=1e-5)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_kind(method: Any, kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(31)
    rows = np.stack([make_row(kind, 20011, rng) for _ in range(len(P))]).astype(dtype)
    check(rows, P, TEMPERATURES, "index")
    check(rows[:4], P[:4], TEMPERATURES[:4], "sort")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rows_of_all_kinds(method: Any, dtype: Any) -> None:
    """Side by side, each with several limits."""
    rng = np.random.default_rng(38)
    for start in (0, 3):
        rows = np.stack([make_row(kind, 16411, rng) for kind in KINDS]).astype(dtype)
        limits = [P[(start + i) % len(P)] for i in range(len(KINDS))]
        temperatures = [TEMPERATURES[(start + i) % len(P)] for i in range(len(KINDS))]
        check(rows, limits, temperatures, "index" if start else "sort")


def test_rare_values(method: Any) -> None:
    rng = np.random.default_rng(32)
    rows = rng.standard_normal((10, 16384)).astype(np.float32)
    rows[0, 7] = np.nan
    rows[1, [3, 9000]] = np.inf
    rows[2] = -np.inf
    rows[3] = 0
    rows[4] = np.where(rows[4] > 0, 0.0, -0.0)
    rows[5] += 5000
    rows[6, 77] = 1e9
    rows[7, rng.random(16384) < 0.5] = np.finfo(np.float32).min
    rows[8] = -np.inf
    rows[8, [5, 6]] = [1, 2]
    rows[9] = np.round(rows[9])
    cases = [("index", 0.9), ("sort", 0.4), ("index", 1.0)]
    if Device("cuda").hardware:
        cases = [(ties, p) for ties in ("index", "sort") for p in (0.9, 0.4, 1.0, 0.0)]
    for ties, p in cases:
        check(rows, [p] * 10, [1.0] * 10, ties)
    found = sampling.mask(Device("cuda").put(rows[:1]), top_p=0.5, check=False)
    assert not np.isnan(Device("cuda").get(found)).any()
    with pytest.raises(InputError, match="row 0"):
        sampling.mask(Device("cuda").put(rows), top_p=0.5)


@pytest.mark.hardware
@pytest.mark.parametrize("size", [131072, 262144, 300001])
def test_large_vocabularies(method: Any, size: int) -> None:
    rng = np.random.default_rng(33)
    rows = np.stack([make_row(kind, size, rng) for kind in ("power", "normal", "peaks")])
    check(rows, [0.9] * 3, [1.0] * 3, "index")


@pytest.mark.hardware
def test_millions_of_entries() -> None:
    rng = np.random.default_rng(34)
    check(make_row("power", 2_200_000, rng)[np.newaxis], [0.9], [1.0], "index")


@pytest.mark.hardware
@pytest.mark.parametrize("copies", [1, 9])
def test_masses_of_long_flat_rows(copies: int) -> None:
    """Half a million terms near 1 take more than 64 bits in 2^-45."""
    rng = np.random.default_rng(37)
    row = rng.standard_normal(600_000).astype(np.float16)
    check(np.repeat(row[np.newaxis], copies, 0), [0.9] * copies, [100.0] * copies, "index")
    zeros = Device("cuda").put(np.zeros((2 * copies, 1 << 21), np.float32))
    found = sampling.candidates(zeros, top_p=1.0, capacity=4, check=False)
    assert np.allclose(Device("cuda").get(found.log_mass), 21 * np.log(2), rtol=0, atol=1e-9)


def test_what_is_kept_for_certain_reaches_p(method: Any) -> None:
    """A float32 sum of neighbours loses what is far below them, and the window is a long list."""
    row = np.full(16384, -np.inf, np.float32)
    row[::4] = 0
    row[1:4000:4] = -20
    device = Device("cuda")
    p = 1 - 2.5e-10
    found = sampling.candidates(device.put(row[np.newaxis]), top_p=p, in_order=True)
    masked = device.get(sampling.mask(device.put(row[np.newaxis]), top_p=p))
    count = int(device.get(found.counts)[0])
    assert count == int((masked > -np.inf).sum()) and 4096 <= count <= 5096


@pytest.mark.parametrize(
    ("grid", "least", "most"),
    [(0.0, 1, 1), (0.01, 30, 1000), (0.1, 1100, 4096), (0.5, 5000, 10**5)],
)
def test_bits_depend_on_neither_batch_nor_method(
    monkeypatch: pytest.MonkeyPatch, grid: float, least: int, most: int
) -> None:
    """Where few entries are at the boundary, hundreds, too many for the chip, and for any list."""
    from flashtrie.gpu import sampling as on_gpu

    rng = np.random.default_rng(35)
    count = 70 if Device("cuda").hardware else 6
    drawn = np.stack([make_row("power", 50000, rng) for _ in range(count)])
    if grid:
        drawn = (np.round(rng.standard_normal(drawn.shape) / grid) * grid).astype(np.float32)
    rows = Device("cuda").put(drawn)
    kept: list[Any] = []
    for methods in METHODS:
        monkeypatch.setattr(on_gpu, "TOP_P_METHODS", methods)
        for part in (rows, rows[:3]):
            found = sampling.candidates(part, top_p=0.9, capacity=40000, in_order=True)
            masked = sampling.mask(part[:3], top_p=0.9)
            tokens = sampling.sample(part[:3], 7, top_p=0.9).tokens
            arrays = (found.log_mass[:3], found.indices[:3], masked, tokens)
            kept.append(tuple(array.get().tobytes() for array in arrays))
    assert len(set(kept)) == 1
    on_cpu = sampling.mask(drawn[:3], top_p=0.9)
    assert kept[0][2] == on_cpu.tobytes()
    for row, masked in zip(drawn, on_cpu, strict=False):
        boundary = masked[masked > -np.inf].min()
        assert least <= np.count_nonzero(row == boundary) <= most


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(
    ("columns", "vocab_size", "top_k"),
    [(40, 100, 1000), (5003, 5003, 1000), (70001, 60000, 1000), (70001, 70001, 5000), (9, 4, 2)],
)
def test_best_of_a_softmax(columns: int, vocab_size: int, top_k: int, dtype: Any) -> None:
    from flashtrie.cpu.logits import logit_proposals as on_cpu
    from flashtrie.cpu.threads import Workers
    from flashtrie.gpu.logits import logit_proposals

    rng = np.random.default_rng(36)
    logits = rng.standard_normal((3, 2, columns)).astype(dtype)
    logits[0, 1] = np.round(logits[0, 1] * 2) / 2
    logits[1, 0] = 1000.5
    logits[1, 1, 3:] = -np.inf
    logits[2, 0] = -np.inf
    logits[2, 1] *= 1e4
    found = logit_proposals(logits, vocab_size, top_k)
    found.check()
    workers = Workers()
    tokens, logprobs = on_cpu(logits, vocab_size, top_k, workers, 2)
    workers.close()
    if dtype != np.float64:
        np.testing.assert_array_equal(found.tokens.get(), tokens)
    else:
        assert_near(found.tokens.get(), tokens, logits, logprobs)
    got = found.logprobs.get()
    finite = np.isfinite(logprobs)
    assert np.array_equal(np.isfinite(got), finite)
    np.testing.assert_array_max_ulp(got[finite], logprobs[finite], 1)


def assert_near(got: Any, tokens: Any, logits: Any, logprobs: Any) -> None:
    """float64 is rounded relative to its maximum: only neighbours within a unit change places."""
    for query, step in np.ndindex(tokens.shape[:2]):
        row, here = logits[query, step], got[query, step]
        present = tokens[query, step] != ABSENT
        assert np.array_equal(here != ABSENT, present)
        assert len(set(here[present].tolist())) == np.count_nonzero(present)
        top = row.max()
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = (row - top - np.log(np.exp(row - top).sum())).astype(np.float32)
        placed = exact[here[present]]
        np.testing.assert_array_max_ulp(placed, logprobs[query, step][present], 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("top_k", [10, 1000, 5000])
def test_a_mask_of_the_lowest_number(top_k: int, dtype: Any) -> None:
    """Where fewer are not masked than are wanted, masked ones follow: they are not -inf."""
    from flashtrie.cpu.logits import logit_proposals as on_cpu
    from flashtrie.cpu.threads import Workers
    from flashtrie.gpu.logits import logit_proposals

    rng = np.random.default_rng(37)
    logits = rng.standard_normal((2, 2, 20011)).astype(dtype)
    logits[rng.random(logits.shape) < 0.99] = np.finfo(dtype).min
    logits[1, 1, 5:] = -np.inf
    found = logit_proposals(logits, 20011, top_k)
    found.check()
    workers = Workers()
    tokens, logprobs = on_cpu(logits, 20011, top_k, workers, 2)
    workers.close()
    np.testing.assert_array_equal(found.tokens.get(), tokens)
    np.testing.assert_array_max_ulp(found.logprobs.get(), logprobs, 1)


def test_logits_that_are_refused() -> None:
    from flashtrie.gpu.logits import logit_proposals

    for bad in (np.nan, np.inf):
        logits = np.zeros((2, 3, 5000), np.float32)
        logits[1, 2, 77] = bad
        with pytest.raises(InputError, match="query 1, step 3, column 77"):
            logit_proposals(logits, 5000, 10).check()
