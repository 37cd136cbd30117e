"""Which device and stream a search runs on, and what it keeps from call to call."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashtrie.formats.errors import InputError
from tests.gpu.conftest import assert_same
from tests.strategies import key_set, proposals

pytestmark = pytest.mark.gpu

ROWS = key_set("narrow", 2000)
GIVEN = proposals(ROWS, 3, 40, tied=False)
TORCH_STREAM = 77


@pytest.fixture(scope="module")
def built(build_trie):
    with build_trie(ROWS) as trie:
        yield trie


def test_penalties_are_of_a_stream(built):
    """So that no other reads them before they are there, or when others take their place."""
    import cupy

    searcher = built.device.searcher
    first = searcher._penalties_of(6, 0.5)
    assert searcher._penalties_of(6, 0.5) is first
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    found = []
    for stream in streams:
        with stream:
            found.append(searcher._penalties_of(6, 0.5))
            assert searcher._penalties_of(6, 0.5) is found[-1]
            stream.synchronize()
    assert len({id(array) for array in (first, *found)}) == 3
    for array in found:
        assert array.get().tolist() == first.get().tolist()


def test_the_last_used_penalties_are_kept(built):
    from flashtrie.gpu import search

    searcher = built.device.searcher
    first = searcher._penalties_of(6, 0.5)
    for i in range(3 * search._KEPT_PENALTIES):
        searcher._penalties_of(6, 0.001 * i)
        assert searcher._penalties_of(6, 0.5) is first
        assert len(searcher._penalties) <= search._KEPT_PENALTIES


def test_workspaces_of_a_few_streams_are_kept(built):
    import cupy

    from flashtrie.gpu import search

    searcher = built.device.searcher
    expected = built.device.search(beam_width=20, **GIVEN)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3 * search._KEPT_WORKSPACES)]
    for stream in streams:
        with stream:
            assert_same(built.device.search(beam_width=20, **GIVEN), expected)
        assert len(searcher._workspaces) <= search._KEPT_WORKSPACES
    # What was used last stays, the same for a search of the same shape.
    held = list(searcher._workspaces.values())
    for stream in streams[-2:]:
        with stream:
            built.device.search(beam_width=20, **GIVEN)
    assert {id(w) for _, w in searcher._workspaces.values()} == {id(w) for _, w in held}
    assert list(searcher._workspaces)[-1][0] == streams[-1].ptr


def test_streams_that_each_thread_has_for_itself():
    """They have one number in all threads, and yet are not one stream."""
    import cupy

    from flashtrie.gpu.search import _current_stream

    def here() -> Any:
        with cupy.cuda.ExternalStream(2):
            return _current_stream()

    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(here).result()
    assert here() == here() != there
    assert _current_stream()[1] == 0


@pytest.fixture
def emulated() -> Any:
    import cupy

    if not hasattr(cupy, "EMULATED"):
        pytest.skip("looks into the emulated device")
    return cupy


@pytest.fixture
def launched(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The current device and stream of each launch."""
    found: list[tuple[int, int]] = []
    launch = emulated.Function.__call__

    def recorded(self: Any, *given: Any, **options: Any) -> None:
        found.append((emulated.cuda.Device().id, emulated.cuda.get_current_stream().ptr))
        launch(self, *given, **options)

    monkeypatch.setattr(emulated.Function, "__call__", recorded)
    return found


@pytest.fixture
def devices(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Several devices, all of them the emulated one; the current one is a thread's."""
    current = threading.local()

    class Device(emulated.Device):  # type: ignore[misc]
        def __init__(self, number: int | None = None) -> None:
            super().__init__(getattr(current, "number", 0) if number is None else number)
            self._before: list[int] = []

        def use(self) -> None:
            current.number = self.id

        def __enter__(self) -> Any:
            self._before.append(getattr(current, "number", 0))
            current.number = self.id
            return self

        def __exit__(self, *_: object) -> None:
            current.number = self._before.pop()

    monkeypatch.setattr(emulated.cuda, "Device", Device)
    return Device


def test_a_trie_is_searched_on_the_device_that_it_is_on(build_trie, devices, launched):
    from flashtrie.gpu.verify import checks_of

    logits = np.random.default_rng(1).standard_normal((2, 3, 200)).astype(np.float32)
    tokens, offsets = np.array(ROWS[0]), np.array([0, len(ROWS[0])])
    with build_trie(ROWS) as trie, devices(1):
        device = trie.trie.to_device()
    assert device.device == 1 and trie.device.device == 0
    calls = [
        lambda: device.search(beam_width=20, length_penalty=0.5, **GIVEN),
        lambda: device.search(beam_width=20, top_k=9, **GIVEN),
        lambda: device.search_on_device(beam_width=20, **GIVEN).to_host(),
        lambda: device.search_logits(logits, beam_width=20),
        lambda: device.lookup_flat(tokens, offsets),
    ]
    launched.clear()
    with ThreadPoolExecutor(1) as pool:
        for call in calls:
            assert pool.submit(lambda: devices().id).result() == 0
            pool.submit(call).result()
    assert len(launched) >= len(calls) and {number for number, _ in launched} == {1}
    result = device.search_on_device(beam_width=20, **GIVEN)
    assert result.device == 1 and devices().id == 0
    with build_trie(ROWS) as trie, devices(1):
        device = trie.trie.to_device()
        launched.clear()
        with devices(0):
            assert all(check.ok for check in checks_of(trie.artifact, device))
        assert {number for number, _ in launched} == {1}


class Tensor:
    """Stands in for one of PyTorch, on the device or pinned."""

    __module__ = "torch"

    def __init__(self, array: Any, kind: int = 2, device: int = 0) -> None:
        self.array, self.dtype, self._place = array, f"torch.{array.dtype}", (kind, device)
        self.shape = array.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array

    def detach(self) -> Tensor:
        return self


@pytest.fixture
def torch(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of it, and the way of its tensors to CuPy."""
    import sys

    stream = SimpleNamespace(cuda_stream=TORCH_STREAM)
    cuda = SimpleNamespace(current_stream=lambda device: stream)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def from_dlpack(tensor: Tensor) -> Any:
        if tensor.__dlpack_device__()[0] not in (2, 13):
            raise TypeError("not on the device")
        return tensor.array

    monkeypatch.setattr(emulated, "from_dlpack", from_dlpack)


def test_tensors_are_searched_on_the_stream_of_pytorch(built, torch, launched, emulated):
    """It gives their memory to the next ones of its stream as soon as they are dropped."""
    expected = built.device.search(beam_width=20, **GIVEN)
    tensors = {name: Tensor(emulated.asarray(array)) for name, array in GIVEN.items()}
    launched.clear()
    assert_same(built.device.search(beam_width=20, **tensors), expected)
    result = built.device.search_on_device(beam_width=20, **tensors)
    assert_same(result.to_host(), expected)
    assert {stream for _, stream in launched} == {TORCH_STREAM}
    assert result.stream.ptr == TORCH_STREAM
    assert result.held.tokens.data.ptr == tensors["tokens"].array.data.ptr
    # One of them on the device is enough; none is CuPy's current stream.
    launched.clear()
    mixed = {**GIVEN, "end_logprobs": tensors["end_logprobs"]}
    assert_same(built.device.search(beam_width=20, **mixed), expected)
    assert {stream for _, stream in launched} == {TORCH_STREAM}
    launched.clear()
    assert_same(built.device.search(beam_width=20, **GIVEN), expected)
    assert {stream for _, stream in launched} == {0}


def test_logits_of_pytorch_on_its_stream(built, torch, launched, emulated):
    logits = np.random.default_rng(1).standard_normal((2, 3, 200)).astype(np.float32)
    expected = built.device.search_logits(logits, beam_width=20)
    launched.clear()
    found = built.device.search_logits(Tensor(emulated.asarray(logits)), beam_width=20)
    assert_same(found, expected)
    assert {stream for _, stream in launched} == {TORCH_STREAM}


@pytest.mark.parametrize("kind", [1, 3])
def test_tensors_of_the_host_and_pinned_ones(built, torch, kind):
    """They are not on the device, though pinned ones have a type of their own."""
    expected = built.device.search(beam_width=20, **GIVEN)
    tensors = {name: Tensor(array, kind) for name, array in GIVEN.items()}
    assert_same(built.device.search(beam_width=20, **tensors), expected)
    mixed = {**tensors, "tokens": GIVEN["tokens"]}
    assert_same(built.device.search(beam_width=20, **mixed), expected)


def test_tensors_on_other_devices(built, torch, emulated):
    on_device = Tensor(emulated.asarray(GIVEN["tokens"]), 13)
    assert len(built.device.search(on_device, GIVEN["logprobs"], beam_width=20).key_ids)
    for kind, device, message in ((2, 1, "CUDA device 1"), (8, 0, "type 8")):
        tensor = Tensor(emulated.asarray(GIVEN["tokens"]), kind, device)
        with pytest.raises(InputError, match=message):
            built.device.search(tensor, GIVEN["logprobs"], beam_width=20)


@pytest.mark.hardware
def test_tensors_that_are_dropped_on_a_stream_of_pytorch(built):
    torch = pytest.importorskip("torch")
    expected = built.device.search(beam_width=200, **GIVEN)
    side = torch.cuda.Stream()
    results = []
    with torch.cuda.stream(side):
        for _ in range(50):
            tensors = {name: torch.from_numpy(a).cuda() for name, a in GIVEN.items()}
            results.append(built.device.search_on_device(beam_width=200, **tensors))
            del tensors
            for array in GIVEN.values():
                torch.full(array.shape, 7, device="cuda", dtype=torch.int64)
    for result in results:
        assert_same(result.to_host(), expected)
    pinned = {name: torch.from_numpy(a).pin_memory() for name, a in GIVEN.items()}
    assert_same(built.device.search(beam_width=200, **pinned), expected)


@pytest.mark.hardware
def test_two_devices(build_trie):
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two CUDA devices")
    with build_trie(ROWS) as trie:
        expected = trie.search(beam_width=20, **GIVEN)
        with cupy.cuda.Device(1):
            there = trie.trie.to_device()
        with ThreadPoolExecutor(4) as pool:
            for found in [pool.submit(there.search, beam_width=20, **GIVEN) for _ in range(8)]:
                assert_same(found.result(), expected)
        with pytest.raises(InputError, match="CUDA device 0"):
            there.search(cupy.asarray(GIVEN["tokens"]), GIVEN["logprobs"])
