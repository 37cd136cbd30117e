"""Numbers beside the logits mean the same on both engines, and outputs fit their logits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flashtrie import sampling
from flashtrie.formats.errors import InputError, UsageError
from tests.sampling.conftest import Device, has_gpu

ROWS = np.random.default_rng(90).standard_normal((6, 300)).astype(np.float32)
SAME = np.repeat(ROWS[:1], 6, axis=0)


def _tokens(device: Device, seeds: Any, positions: Any = None) -> list[int]:
    given = device.put(seeds), device.put(positions)
    drawn = sampling.sample(device.put(SAME), *given, temperature=2.0)
    tokens: list[int] = device.get(drawn.tokens).tolist()
    return tokens


REFUSED: list[tuple[str, Any]] = [
    ("top_k", 50.7),
    ("top_k", 50.0),
    ("top_k", np.float32(50)),
    ("top_k", "50"),
    ("top_k", None),
    ("top_k", [50.0] * 6),
    ("top_k", np.array(50.5)),
    ("top_p", float("nan")),
    ("top_p", np.float32("nan")),
    ("top_p", np.array(np.nan)),
    ("top_p", [0.5] * 5 + [np.nan]),
    ("top_p", "0.5"),
    ("top_p", 1j),
    ("top_p", ["0.5"] * 6),
    ("temperature", -0.1),
    ("temperature", np.float32(-0.1)),
    ("temperature", np.float64("nan")),
    ("temperature", [1.0] * 5 + [-1.0]),
    ("temperature", np.array([1.0] * 5 + [np.nan])),
    ("temperature", None),
    ("temperature", [1.0] * 5),
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=[f"{n}={v!r}" for n, v in REFUSED])
def test_what_is_no_such_number(device: Device, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        sampling.candidates(device.put(ROWS), **{name: value})
    # Where it lies with the logits, too.
    if isinstance(value, (list, np.ndarray)) and np.asarray(value).dtype.kind == "f":
        with pytest.raises(UsageError, match=name):
            sampling.candidates(device.put(ROWS), **{name: device.put(np.asarray(value))})


@pytest.mark.parametrize("value", [1.5, None, "7", np.float64(1), [0.5] * 6])
def test_seeds_and_positions_are_whole(device: Device, value: Any) -> None:
    with pytest.raises(UsageError, match="seeds is a whole number"):
        _tokens(device, value)
    if value is not None:
        with pytest.raises(UsageError, match="positions is a whole number"):
            _tokens(device, 1, value)
    with pytest.raises(UsageError, match="capacity is a whole number"):
        sampling.candidates(device.put(ROWS), capacity=2.5)  # type: ignore[arg-type]


def test_seeds_and_positions_count_modulo_2_to_the_64(device: Device) -> None:
    assert _tokens(device, 2**64 + 5) == _tokens(device, 5)
    assert _tokens(device, 2**63) == _tokens(device, -(2**63)) != _tokens(device, 0)
    assert _tokens(device, np.uint64(2**64 - 1)) == _tokens(device, -1)
    assert _tokens(device, np.full(6, 2**63, np.uint64)) == _tokens(device, 2**63)
    assert _tokens(device, 1, 2**64 + 5) == _tokens(device, 1, 5)
    assert _tokens(device, 1, 2**63) == _tokens(device, 1, np.full(6, 2**63, np.uint64))


@pytest.mark.parametrize("options", [{}, {"top_k": 40}, {"top_p": 0.9}])
@pytest.mark.parametrize("size", [300, 20_000])
def test_a_position_below_0_is_one(device: Device, size: int, options: dict[str, Any]) -> None:
    """And not the number of a row."""
    row = np.random.default_rng(91).standard_normal((1, size)).astype(np.float32)
    logits = device.put(np.repeat(row, 6, axis=0))

    def tokens(positions: Any) -> list[int]:
        drawn = sampling.sample(logits, 3, positions, temperature=3.0, **options)
        found: list[int] = device.get(drawn.tokens).tolist()
        return found

    for position in (-1, -7, 0, 2):
        assert tokens(position) == tokens(device.put(np.full(6, position)))
        assert len(set(tokens(position))) == 1
    assert tokens(None) == tokens(device.put(np.arange(6)))
    assert len(set(tokens(None))) > 1


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
def test_tokens_are_those_of_the_cpu() -> None:
    cpu, cuda = Device("cpu"), Device("cuda")
    for seeds in (2**63, -1, 2**64 - 1, 10**30, np.int8(-3), np.arange(6) - 3, [1, 2, 3, 4, 5, 6]):
        for positions in (None, -1, 2**63, np.uint8(200), np.arange(6) - 3):
            assert _tokens(cuda, seeds, positions) == _tokens(cpu, seeds, positions)


@pytest.mark.parametrize("k", [0, -1, -(2**70), 300, 2**63, 2**70, np.uint64(2**63), False])
def test_a_k_that_is_off(device: Device, k: Any) -> None:
    found = sampling.candidates(device.put(ROWS), top_k=k)
    assert device.get(found.counts).tolist() == [300] * 6
    assert found.indices.shape == (6, 300)


def test_numbers_of_numpy_are_as_those_of_python(device: Device) -> None:
    found = sampling.candidates(
        device.put(ROWS), top_k=np.int16(7), top_p=np.float32(1), temperature=np.array(2)
    )
    assert found.indices.shape == (6, 7)
    lists = sampling.candidates(
        device.put(ROWS), top_k=[7] * 6, top_p=(1,) * 6, temperature=[2.0] * 6
    )
    assert device.get(lists.counts).tolist() == [7] * 6
    assert np.array_equal(device.get(lists.log_mass), device.get(found.log_mass))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_a_mask_goes_to_what_is_as_the_logits_are(device: Device, dtype: Any) -> None:
    """Anything else would be written out of its bounds, or as other numbers."""
    logits = device.put(ROWS.astype(dtype))
    for other in {np.float16, np.float32, ml_dtypes.bfloat16, np.float64} - {dtype}:
        out = device.put(np.zeros(ROWS.shape, other))
        with pytest.raises(InputError, match="dtype and shape of the logits"):
            sampling.mask(logits, top_k=3, out=out)
        assert not np.asarray(device.get(out), np.float64).any()
    for shape in ((6, 299), (5, 300), (7, 300), (300,), (6, 300, 1)):
        with pytest.raises(InputError, match=str(list(shape)).replace("[", r"\[")):
            sampling.mask(logits, top_k=3, out=device.put(np.zeros(shape, dtype)))
    wide = device.put(np.zeros((6, 700), dtype))
    sampling.mask(logits, top_k=3, out=wide[:, 100:400])
    found = np.asarray(device.get(wide), np.float64)
    assert not found[:, :100].any() and not found[:, 400:].any()
    assert (np.isfinite(found[:, 100:400]).sum(axis=1) == 3).all()


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
def test_a_mask_lies_where_its_logits_do() -> None:
    device = Device("cuda")
    for logits, out in ((ROWS, device.put(ROWS)), (device.put(ROWS), ROWS.copy())):
        with pytest.raises(InputError, match=r"CUDA device 0"):
            sampling.mask(logits, top_k=3, out=out)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
def test_launches_check_the_mask_themselves() -> None:
    import cupy

    from flashtrie.gpu import sampling as on_gpu

    def matrix(array: Any, element: int) -> Any:
        rows, size = array.shape
        return on_gpu.Matrix(array.data.ptr, size, rows, size, element, array)

    logits = matrix(cupy.asarray(ROWS), 0)
    for out, element in (
        (cupy.zeros((6, 300), np.float16), 1),
        (cupy.zeros((6, 299), np.float32), 0),
        (cupy.zeros((5, 300), np.float32), 0),
    ):
        with pytest.raises(InputError, match="mask"):
            on_gpu.select(logits, 3, 1.0, 1.0, on_gpu.Wanted(masked=matrix(out, element)))


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
def test_numbers_of_the_host_and_pinned_arrays_go_along() -> None:
    """What beside the logits lies on the host, as PyTorch's CPU tensors do, is brought over."""
    device = Device("cuda")
    on_host: dict[str, Any] = {
        "top_k": _OnHost(np.full(6, 9)),
        "top_p": _OnHost(np.full(6, 0.9, np.float32), pinned=True),
    }
    found = sampling.candidates(device.put(ROWS), **on_host, capacity=9)
    expected = sampling.candidates(ROWS, 9, np.float32(0.9), capacity=9)
    assert device.get(found.counts).tolist() == expected.counts.tolist()


class _OnHost:
    """Speaks DLPack, and is no array of NumPy."""

    ndim = 1

    def __init__(self, array: Any, pinned: bool = False) -> None:
        self._array, self._kind = array, 3 if pinned else 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 0

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._array
