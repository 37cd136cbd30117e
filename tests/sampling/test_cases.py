"""Every row of the table of cases, in all three results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashtrie import sampling
from flashtrie.formats.errors import InputError, UsageError
from tests.sampling import oracle
from tests.sampling.cases import CASES, Case
from tests.sampling.conftest import has_gpu

_PLAIN = {"k": "top_k", "p": "top_p"}


def options_of(case: Case) -> dict[str, Any]:
    return {_PLAIN.get(name, name): value for name, value in case.options.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_oracle(case: Case) -> None:
    expected = oracle.select(case.row(), **case.options)
    assert len(expected.order) == case.kept
    if case.indices is not None:
        assert tuple(expected.order) == case.indices


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_candidates(case: Case, device: Any) -> None:
    row = case.row()
    expected = oracle.select(row, **case.options)
    found = sampling.candidates(
        device.put(row[None]), **options_of(case), capacity=len(row), in_order=True
    )
    indices, values = device.get(found.indices)[0], device.get(found.values)[0]
    assert device.get(found.counts)[0] == case.kept
    assert list(indices[: case.kept]) == list(expected.order)
    assert np.array_equal(values[: case.kept], row[expected.order])
    assert (indices[case.kept :] == -1).all() and (values[case.kept :] == -np.inf).all()
    assert device.get(found.log_mass)[0] == pytest.approx(expected.log_mass, abs=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("in_place", [False, True])
def test_mask(case: Case, device: Any, in_place: bool) -> None:
    row = case.row()
    expected = np.full_like(row, -np.inf)
    kept = oracle.select(row, **case.options).order
    expected[kept] = row[kept]
    logits = device.put(np.stack([row, row]))
    masked = sampling.mask(logits, **options_of(case), out=logits if in_place else None)
    assert (masked is logits) == in_place
    got = device.get(masked)
    assert np.array_equal(got.view(np.uint32), np.stack([expected, expected]).view(np.uint32))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sample(case: Case, device: Any) -> None:
    row = case.row()
    expected = oracle.select(row, **case.options)
    drawn = sampling.sample(device.put(np.stack([row] * 40)), 5, **options_of(case))
    tokens, logprobs = device.get(drawn.tokens), device.get(drawn.logprobs)
    if case.kept == 0:
        assert (tokens == -1).all() and (logprobs == -np.inf).all()
        return
    assert set(tokens.tolist()) <= expected.kept
    temperature = case.options.get("temperature", 1.0)
    for token, logprob in zip(tokens, logprobs, strict=True):
        x, top = float(row[token]), float(row[expected.order[0]])
        scaled = 0.0 if x == top or temperature == 0 else (x - top) / temperature
        assert logprob == pytest.approx(scaled - expected.log_mass, abs=1e-5)


def test_nan_is_flagged_and_other_rows_are_exact(device: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((3, 9000)).astype(np.float32)
    rows[1, 7] = np.nan
    with pytest.raises(InputError, match="row 1"):
        sampling.mask(device.put(rows), top_k=9)
    for k, p in ((9, 1.0), (0, 0.7), (4000, 0.99)):
        found = sampling.candidates(device.put(rows), k, p, check=False, in_order=True)
        for r in range(3):
            expected = oracle.select(rows[r], k, p)
            count = int(device.get(found.counts)[r])
            assert list(device.get(found.indices)[r][:count]) == list(expected.order)


def test_row_stride(device: Any) -> None:
    wide = np.random.default_rng(1).standard_normal((5, 5003)).astype(np.float32)
    part = device.put(wide)[:, :4999]
    choices: list[dict[str, Any]] = [{"top_k": 40}, {"top_p": 0.6}, {"top_k": 2500, "top_p": 0.9}]
    for options in choices:
        got = sampling.mask(part, **options)
        whole = sampling.mask(device.put(np.ascontiguousarray(wide[:, :4999])), **options)
        assert np.array_equal(device.get(got), device.get(whole))


@pytest.mark.parametrize("rows", [48, pytest.param(16_448, marks=pytest.mark.large)])
def test_many_rows_of_a_large_vocabulary(rows: int) -> None:
    """All of them one row in memory, so that the last is the first."""
    row = np.random.default_rng(2).standard_normal(131_072).astype(np.float32)
    logits = np.lib.stride_tricks.as_strided(row, (rows, len(row)), (0, 4))
    found = sampling.candidates(logits, top_k=50)
    assert set(found.indices[0].tolist()) == oracle.select(row, 50).kept
    assert (found.indices == found.indices[0]).all()


@pytest.mark.large
def test_more_entries_than_32_bits_count_on_the_cpu() -> None:
    """8.6 GB, of which only the two rows that are not zero take memory."""
    logits = np.zeros((32_800, 131_072), np.float16)
    logits[0] = logits[-1] = np.random.default_rng(4).standard_normal(131_072)
    found = sampling.candidates(logits, top_k=50)
    assert list(found.indices[-1]) == list(oracle.select(logits[0], 50).order)
    assert (found.indices[0] == found.indices[-1]).all()
    assert (found.indices[1:-1] == np.arange(50)).all()


# Rows, and the one at which the last is read and written where 32 bits count bytes, or entries.
@pytest.mark.hardware
@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("rows", "dtype", "wrapped"),
    [
        pytest.param(16_448, np.float32, 63, id="2^31"),
        pytest.param(32_800, np.float16, 31, id="2^32"),
    ],
)
def test_more_entries_than_31_and_32_bits_count(rows: int, dtype: Any, wrapped: int) -> None:
    """8.6 GB of logits, and as many of a mask."""
    import cupy

    last, size = rows - 1, 131_072
    assert (last * size * np.dtype(dtype).itemsize) % 2**32 == (
        wrapped * size * np.dtype(dtype).itemsize
    )
    logits = cupy.empty((rows, size), dtype)
    random = cupy.random.RandomState(5)
    for start in range(0, rows, 4096):
        noise = random.standard_normal((min(4096, rows - start), size), dtype=np.float32)
        logits[start : start + 4096] = noise * 2
    logits[last] = logits[0]
    at = [0, wrapped, last]
    few = logits[at]
    assert bool((few[0] == few[2]).all()) and not bool((few[0] == few[1]).all())
    found = sampling.candidates(logits, top_k=50)
    for place in at:
        expected = oracle.select(logits[place].get(), 50)
        assert found.indices[place].tolist() == expected.order.tolist()
    positions = cupy.zeros(rows, np.int64)
    choices: list[dict[str, Any]] = [{"top_k": 50}, {"top_p": 0.9}]
    for options in choices:
        drawn = sampling.sample(logits, 7, positions, **options)
        of_few = sampling.sample(few, 7, positions[:3], **options)
        assert drawn.tokens[at].tolist() == of_few.tokens.tolist()
        assert drawn.logprobs[at].tolist() == of_few.logprobs.tolist()
    masked = sampling.mask(logits, top_k=50)
    assert bool((masked[at] == sampling.mask(few, top_k=50)).all())
    del masked
    sampling.mask(logits, top_p=0.9, out=logits)
    assert bool((logits[at] == sampling.mask(few, top_p=0.9)).all())
    del logits
    cupy.get_default_memory_pool().free_all_blocks()


def test_capacity(device: Any) -> None:
    rows = np.round(np.random.default_rng(3).standard_normal((4, 6001)) * 4).astype(np.float32) / 4
    for ties in ("index", "sort"):
        with pytest.raises(InputError, match="capacity"):
            sampling.candidates(device.put(rows), top_p=0.9, capacity=100, ties=ties)
        for capacity in (1, 100, 2500):
            found = sampling.candidates(
                device.put(rows), top_p=0.9, capacity=capacity, ties=ties, check=False,
                in_order=True,
            )  # fmt: skip
            for r in range(4):
                expected = oracle.select(rows[r], 0, 0.9, ties=ties)
                assert device.get(found.counts)[r] == len(expected.order)
                assert list(device.get(found.indices)[r]) == list(expected.order[:capacity])


def test_arguments_that_cannot_be_right() -> None:
    logits = np.zeros((2, 8), np.float32)
    wrong_options: list[dict[str, Any]] = [
        {"ties": "any"},
        {"top_p": float("nan")},
        {"temperature": -1.0},
        {"top_k": np.zeros(3, int)},
        {"top_k": np.zeros(2)},
    ]
    for options in wrong_options:
        with pytest.raises(UsageError):
            sampling.mask(logits, **options)
    for wrong in (np.zeros(8, np.float32), np.zeros((2, 8)), np.zeros((0, 8), np.float32)):
        with pytest.raises(InputError):
            sampling.mask(wrong)
