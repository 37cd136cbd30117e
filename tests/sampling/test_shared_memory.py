"""Shared memory of blocks on GPUs that have less of it than the ones that sampling was made for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashtrie import sampling
from flashtrie.gpu import sampling_plan
from flashtrie.gpu.compile_check import sampling_error
from tests.sampling import oracle
from tests.sampling.conftest import Device, has_gpu

KIB = 1024
RESOLVE = "sampling_resolve.cu"


@pytest.mark.parametrize("kib", [99, 163, 227])
def test_the_list_of_a_block_fits(kib: int) -> None:
    static = sampling_plan.STATIC_BYTES[RESOLVE]
    for large in (False, True):
        room = sampling_plan.resolve_bytes(large, kib * KIB)
        assert room % 8 == 0 and static + room <= kib * KIB
        assert room == (128 * KIB if large else 64 * KIB) or kib == 99
    assert sampling_plan.resolve_bytes(True, 99 * KIB) == 75 * KIB


@pytest.mark.parametrize("threads", [256, 512])
def test_what_compiling_everything_would_say(threads: int) -> None:
    """Also where the architecture itself has room."""
    defines = {"THREADS": threads}
    static = sampling_plan.STATIC_BYTES[RESOLVE]
    assert sampling_error(RESOLVE, static, defines, 163 * KIB) == ""
    assert "24,584 bytes" in sampling_error(RESOLVE, static + 8, defines, 227 * KIB)
    assert "static" in sampling_error("sampling_hold.cu", 15_000, {}, 227 * KIB)


def test_a_list_that_the_smallest_gpus_have_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_plan, "resolve_bytes", lambda large, there: 80 * KIB)
    found = sampling_error(RESOLVE, 24_000, {"THREADS": 512}, 163 * KIB)
    assert found == f"a block takes {24_000 + 80 * KIB:,} bytes of {99 * KIB:,}"


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{"top_k": 5000}, {"top_k": 6000, "top_p": 0.7}])
def test_large_rows_on_99_kib(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on compute capability 8.6 and 8.9, where no kernel may ask for more."""
    from flashtrie.gpu import sampling as on_gpu
    from flashtrie.gpu import sampling_kernels, sampling_mass

    asked: list[tuple[str, Any]] = []
    kernels = sampling_kernels.kernel.__wrapped__
    monkeypatch.setattr(on_gpu, "LARGE", 1 << 13)
    for module in (on_gpu, sampling_mass, sampling_kernels):
        monkeypatch.setattr(module, "block_bytes", lambda device: 99 * KIB)
    monkeypatch.setattr(on_gpu, "kernel", kernels)
    monkeypatch.setitem(kernels.__globals__, "load", _recording(kernels.__globals__["load"], asked))
    device = Device("cuda")
    row = np.random.default_rng(80).standard_normal((2, 40_000)).astype(np.float32)
    found = sampling.candidates(device.put(row), in_order=True, **options)
    masked = device.get(sampling.mask(device.put(row), **options))
    kept = {"k": options["top_k"], "p": options.get("top_p", 1.0)}
    for r in range(2):
        expected = oracle.select(row[r], **kept)
        count = int(found.counts[r])
        assert oracle.agrees(expected, device.get(found.indices)[r, :count])
        assert oracle.agrees(expected, np.flatnonzero(masked[r] > -np.inf))
    rooms = [f.max_dynamic_shared_size_bytes for name, f in asked if name == "resolve"]
    assert rooms and all(48 * KIB < room <= 75 * KIB for room in rooms)


def _recording(load: Any, asked: list[tuple[str, Any]]) -> Any:
    def recorded(file: str, name: str, *rest: Any) -> Any:
        function = load(file, name, *rest)
        asked.append((name, function))
        return function

    return recorded
