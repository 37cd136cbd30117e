"""Rows of all kinds against the oracle, tokens against the exact distribution, and seeds."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashtrie import sampling
from tests.sampling import oracle
from tests.sampling.cases import power_law

SIZES = [1, 2, 3, 31, 33, 63, 65, 99, 255, 257, 1023, 1025, 4095, 4097, 8191, 8193]
KINDS = ["normal", "flat", "ties", "power", "masked", "few", "peaks", "tiny"]


def make_row(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal(size)
    if kind == "flat":
        x *= 1e-4
    elif kind == "ties":
        x = np.round(x * 2) / 2
    elif kind == "power":
        x = -1.1 * np.log(rng.permutation(size) + 1.0)
    elif kind == "masked":
        x[rng.random(size) < 0.6] = -1e4
    elif kind == "few":
        x[rng.random(size) < 0.97] = -np.inf
    elif kind == "peaks":
        x[rng.integers(size, size=4)] += 10
    elif kind == "tiny":
        x = x * 1e-40
    return x.astype(np.float32)


def check_rows(device: Any, rows: np.ndarray, options: dict[str, Any], **more: Any) -> None:
    """Candidates and mask of a batch against the oracle, row by row."""
    arrays = {
        "top_k": np.asarray(options["k"], np.int64),
        "top_p": np.asarray(options["p"], np.float64),
        "temperature": np.asarray(options["temperature"], np.float64),
    }
    ties = options["ties"]
    logits = device.put(rows)
    put = {name: device.put(array) for name, array in arrays.items()}
    found = sampling.candidates(
        logits, **put, ties=ties, capacity=rows.shape[1], in_order=True, check=False, **more
    )
    masked = device.get(sampling.mask(logits, **put, ties=ties, check=False, **more))
    indices, values = device.get(found.indices), device.get(found.values)
    counts, log_mass = device.get(found.counts), device.get(found.log_mass)
    for r, row in enumerate(rows):
        expected = oracle.select(
            row, options["k"][r], options["p"][r], options["temperature"][r], ties
        )
        n = int(counts[r])
        got = indices[r, :n]
        note = (r, {name: array[r] for name, array in arrays.items()}, ties, n)
        assert oracle.agrees(expected, got), (*note, len(expected.order))
        if n == len(expected.order):
            assert list(got) == list(expected.order), note
            assert log_mass[r] == pytest.approx(expected.log_mass, abs=2e-6), note
        assert np.array_equal(values[r, :n], row[got]), note
        assert (indices[r, n:] == -1).all(), note
        assert list(np.flatnonzero(masked[r] > -np.inf)) == sorted(got), note
        assert np.array_equal(masked[r][got], row[got]), note


def random_options(rng: np.random.Generator, rows: int, size: int) -> dict[str, Any]:
    k = rng.choice([0, 1, 2, 7, size // 2, size - 1, size, size + 5], rows)
    p = rng.choice([0.0, 1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0, 2.0], rows)
    p = np.where(rng.random(rows) < 0.3, rng.random(rows), p)
    return {
        "k": np.where(rng.random(rows) < 0.3, rng.integers(0, size + 1, rows), k),
        "p": p,
        "temperature": rng.choice([0.0, 0.3, 1.0, 1.0, 1.0, 2.5], rows),
        "ties": str(rng.choice(["index", "sort"])),
    }


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(SIZES), st.sampled_from(KINDS))
def test_cpu_equals_oracle(seed: int, size: int, kind: str) -> None:
    from tests.sampling.conftest import Device

    rng = np.random.default_rng(seed)
    rows = np.stack([make_row(kind, size, rng) for _ in range(3)])
    rows[1, rng.integers(size)] = rng.choice([np.inf, np.nan, -np.inf, -0.0])
    check_rows(Device("cpu"), rows, random_options(rng, 3, size))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_mixed_rows(device: Any, kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(11)
    for size in (99, 4097, 8193, 20011) if device.name == "cuda" else (99, 4097):
        rows = np.stack([make_row(kind, size, rng) for _ in range(12)]).astype(dtype)
        rows[1, rng.integers(size)] = np.inf
        rows[2, rng.integers(size)] = np.nan
        rows[3] = -np.inf
        check_rows(device, rows, random_options(rng, 12, size))


@pytest.mark.hardware
@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_large_rows(device: Any, kind: str, dtype: Any) -> None:
    if device.name == "cpu":
        pytest.skip("slow")
    rng = np.random.default_rng(12)
    rows = np.stack([make_row(kind, 131072, rng) for _ in range(6)]).astype(dtype)
    for k, p in ((50, 1.0), (0, 0.9), (50, 0.9), (1000, 0.99), (40000, 0.7), (0, 1.0)):
        options = {"k": [k] * 6, "p": [p] * 6, "temperature": [1.0, 1.0, 0.7, 0.7, 2.0, 2.0]}
        check_rows(device, rows, {**options, "ties": "index"})


@pytest.mark.gpu
def test_pivot_search(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.name == "cpu":
        pytest.skip("a method of the GPU")
    from flashtrie.gpu import sampling as on_gpu

    select = on_gpu.select
    monkeypatch.setattr(
        on_gpu, "select", lambda *args, **options: select(*args, **options, by_pivot=True)
    )
    rng = np.random.default_rng(13)
    for kind in KINDS:
        for size in (99, 4097, 20011):
            rows = np.stack([make_row(kind, size, rng) for _ in range(12)])
            rows[1, rng.integers(size)] = np.inf
            rows[2, rng.integers(size)] = np.nan
            rows[3] = -np.inf
            check_rows(device, rows, random_options(rng, 12, size))


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.8, "temperature": 1.5}])
def test_frequencies(device: Any, options: dict[str, Any]) -> None:
    draws = {"cpu": 30_000, "cuda": 2_000_000 if device.hardware else 4_000}[device.name]
    size = 40
    row = np.random.default_rng(14).standard_normal(size).astype(np.float32)
    if device.name == "cuda":
        import cupy

        rows = cupy.broadcast_to(cupy.asarray(row), (draws, size))
    else:
        rows = np.broadcast_to(row, (draws, size))
    drawn = sampling.sample(rows, 99, **options)
    tokens = device.get(drawn.tokens)
    temperature = options.get("temperature", 1.0)
    kept = oracle.select(row, options.get("top_k", 0), options.get("top_p", 1.0), temperature)
    share = np.exp(row[kept.order].astype(np.float64) / temperature)
    counts = np.bincount(tokens, minlength=size)
    assert counts.sum() == counts[kept.order].sum()
    expected = share / share.sum() * draws
    assert chi_square_p_value(counts[kept.order], expected) > 1e-4


def chi_square_p_value(counts: Any, expected: Any) -> float:
    """How likely such counts or worse ones are, by the cube root that is nearly normal."""
    freedom = len(counts) - 1
    if freedom == 0:
        return 1.0
    ratio = float(((counts - expected) ** 2 / expected).sum()) / freedom
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf((ratio ** (1 / 3) - (1 - spread)) / spread**0.5)


def test_token_depends_on_seed_position_and_row_alone(device: Any) -> None:
    row = np.random.default_rng(15).standard_normal(9001).astype(np.float32)
    rows = device.put(np.stack([row] * 200))
    choices: list[dict[str, Any]] = [{"top_k": 1500}, {"top_p": 0.95}, {}]
    for options in choices:
        tokens = device.get(sampling.sample(rows, 1, **options).tokens)
        again = device.get(sampling.sample(rows[:9], 1, **options).tokens)
        other = device.get(sampling.sample(rows, 2, **options).tokens)
        assert len(set(tokens.tolist())) > 20
        assert list(tokens[:9]) == list(again)
        assert (tokens != other).mean() > 0.9
        seeds = device.put(np.array([1, 2, 2**62, -1, 1]))
        positions = device.put(np.array([5, 5, 5, 2**40, 5]))
        drawn = device.get(sampling.sample(rows[:5], seeds, positions, **options).tokens)
        assert drawn[0] == drawn[4] == tokens[5]
        on_cpu = sampling.sample(
            np.stack([row] * 5), device.get(seeds), device.get(positions), **options
        )
        assert list(on_cpu.tokens) == list(drawn)


def test_bits_do_not_depend_on_the_batch(device: Any) -> None:
    rows = np.stack([power_law(20011, 1.1, seed) for seed in range(40)])
    choices: list[dict[str, Any]] = [{"top_k": 70, "top_p": 0.9}, {"top_p": 0.9}, {"top_k": 9000}]
    for options in choices:
        whole = sampling.candidates(device.put(rows), **options)
        for r in (0, 17, 39):
            one = sampling.candidates(device.put(rows[r : r + 1]), **options)
            assert device.get(one.log_mass)[0] == device.get(whole.log_mass)[r]
            assert np.array_equal(device.get(one.indices)[0], device.get(whole.indices)[r])
