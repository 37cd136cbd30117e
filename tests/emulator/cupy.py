"""What of CuPy flashtrie.gpu and its tests use, with NumPy; the device is the emulated one."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import xxhash

from tests.emulator import memory
from tests.emulator.translate import HEADER, compile_library

EMULATED = True
PROCESSORS = 4
MEMORY = 4 << 30
_CUDA = 2  # device type of DLPack
_MOST_ARGUMENTS = 64

_lock = threading.Lock()  # the device runs one kernel at a time
# Of the order in which blocks and warps run; 0 is that of their numbers.
SEED = int(os.environ.get("FLASHTRIE_EMULATOR_SEED", "1"))


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801
    """An array on the device: as NumPy's, but that nothing takes it for one."""

    def __init__(self, shape: Any, dtype: Any = np.float64, memptr: Any = None) -> None:
        if memptr is None:
            self._host = memory.empty(shape, dtype)
        else:
            shape = (shape,) if np.isscalar(shape) else shape
            self._host = memory.at(memptr, shape, dtype)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._host.ctypes.data)

    def get(self) -> Any:
        return self._host.copy()

    def fill(self, value: Any) -> None:
        self._host.fill(value)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _device(getattr(ufunc, method)(*map(_host, inputs), **options))

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._host, name)
        if not callable(value):
            return value
        return lambda *given, **options: _device(value(*map(_host, given), **options))

    def __getitem__(self, key: Any) -> Any:
        return _device(self._host[_host(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[_host(key)] = _host(value)

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __index__(self) -> int:
        return self._host.__index__()


def _host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_host, value))
    return value._host if isinstance(value, ndarray) else value


def _wrap(array: Any) -> ndarray:
    result = object.__new__(ndarray)
    result._host = array
    return result


def _on_device(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return hasattr(array, "piece")


def _device(value: Any) -> Any:
    """A result of NumPy on the device: where it lies there already, as it is."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return value
    if _on_device(value):
        return _wrap(value)
    copy = memory.empty(value.shape, value.dtype)
    copy[...] = value
    return _wrap(copy)


def _function(name: str) -> Any:
    function = getattr(np, name)

    def call(*given: Any, **options: Any) -> Any:
        for value in given:
            _refuse_numpy(value)
        return _device(function(*map(_host, given), **options))

    return call


def _refuse_numpy(value: Any) -> None:
    """CuPy takes an array of NumPy where it makes one of its own, and nowhere else."""
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type numpy.ndarray")


def empty(shape: Any, dtype: Any = np.float64) -> ndarray:
    return _wrap(memory.empty(shape, dtype))


def empty_like(array: ndarray) -> ndarray:
    return empty(array.shape, array.dtype)


def asarray(array: Any, dtype: Any = None) -> ndarray:
    if isinstance(array, ndarray) and dtype in (None, array.dtype):
        return array
    host = np.asarray(_host(array), dtype)
    copy = memory.empty(host.shape, host.dtype)
    copy[...] = host
    return _wrap(copy)


def ascontiguousarray(array: Any, dtype: Any = None) -> ndarray:
    _refuse_numpy(array)
    there = asarray(array, dtype)
    if there._host.flags.c_contiguous:
        return there
    return asarray(np.ascontiguousarray(there._host))


def from_dlpack(array: Any) -> ndarray:
    if not isinstance(array, ndarray):
        raise TypeError(f"{type(array)} is not on the emulated device")
    return array


def copyto(to: ndarray, value: Any) -> None:
    np.copyto(to._host, _host(value))


def asnumpy(array: Any) -> Any:
    return array.get() if isinstance(array, ndarray) else np.asarray(array)


FUNCTIONS = ("zeros", "full", "arange", "where", "minimum", "log", "isinf", "broadcast_to",
             "argsort", "argmax", "roll", "sort")  # fmt: skip


# The device, its streams and events.


class Device:
    """The only one."""

    compute_capability = "90"
    attributes = {  # noqa: RUF012
        "MultiProcessorCount": PROCESSORS,
        "MaxSharedMemoryPerBlockOptin": 227 << 10,
        "L2CacheSize": 1 << 20,
    }

    def __init__(self, number: int = 0) -> None:
        self.id = number

    def use(self) -> None:
        pass

    synchronize = use

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_current = threading.local()


class Stream:
    """Work is done when a call returns, so order is that of calls."""

    null: Stream

    def __init__(self, pointer: int = 0, device: int = 0, non_blocking: bool = False) -> None:
        self.ptr = pointer or (id(self) if non_blocking else 0)

    def synchronize(self) -> None:
        pass

    def record(self) -> Event:
        return Event()

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        _current.streams = [*getattr(_current, "streams", []), self]
        return self

    def __exit__(self, *_: object) -> None:
        _current.streams.pop()


Stream.null = Stream()


def get_current_stream() -> Stream:
    streams = getattr(_current, "streams", [])
    return streams[-1] if streams else Stream.null


class Event:
    """A moment."""

    def __init__(self) -> None:
        self.time = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass


def get_elapsed_time(first: Event, second: Event) -> float:
    return (second.time - first.time) * 1e3


def alloc_pinned_memory(size: int) -> Any:
    kind = type("Pinned", (ctypes.c_ubyte * size,), {"ptr": property(ctypes.addressof)})
    return kind()


class CUDARuntimeError(RuntimeError):
    """None comes."""


def _copy(to: int, source: int, size: int, kind: int, stream: int = 0) -> None:
    ctypes.memmove(to, source, size)


# Kernels.


class RawModule:
    """A library of translate.py."""

    def __init__(self, path: str, enable_cooperative_groups: bool = False) -> None:
        self.library = ctypes.CDLL(path)
        self.cooperative = enable_cooperative_groups

    def get_function(self, name: str) -> Function:
        return Function(self, name)

    def get_global(self, name: str) -> Any:
        word = ctypes.c_ubyte.in_dll(self.library, name)
        return SimpleNamespace(address=ctypes.addressof(word), piece=word)


class Function:
    """A kernel."""

    max_dynamic_shared_size_bytes = 48 << 10
    shared_size_bytes = 13 << 10

    def __init__(self, module: RawModule, name: str) -> None:
        self._kernel = getattr(module.library, f"emulated_{name}")
        self._cooperative = module.cooperative
        self._cluster = ctypes.c_uint.in_dll(module.library, f"cluster_of_{name}").value
        sizes = (ctypes.c_uint * _MOST_ARGUMENTS)()
        count = getattr(module.library, f"sizes_of_{name}")(sizes)
        self._sizes = sizes[:count]
        self.kernel = SimpleNamespace(ptr=0)

    def __call__(self, grid: Any, block: Any, given: Any, shared_mem: int = 0) -> None:
        values = [_argument(value) for value in given]
        if (sizes := [value.nbytes for value in values]) != self._sizes:
            raise TypeError(f"arguments of {sizes} bytes for parameters of {self._sizes}")
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        together = grid[0] if self._cooperative else self._cluster
        if not 0 < grid[0] < 1 << 31 or not 0 < block[0] <= 1024 or grid[0] % self._cluster:
            raise ValueError(f"a launch of {grid} blocks of {block} threads")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise ValueError(f"{shared_mem:,} bytes of shared memory")
        if together > 2 * PROCESSORS and self._cooperative:
            raise ValueError(f"{together} blocks are not resident together")
        with _lock:
            self._kernel(*map(ctypes.c_uint, (grid[0], block[0])), ctypes.c_size_t(shared_mem),
                         *map(ctypes.c_uint, (together, SEED)), pointers)  # fmt: skip


def _argument(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, ndarray):
        return np.array([value.data.ptr], np.uint64)
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, np.generic):
        raise TypeError(f"an argument of {type(value)}")
    return np.array([value])


class _Program:
    def __init__(self, text: str) -> None:
        self.text = text
        self.code = b""


def _compile(program: _Program, options: tuple[str, ...]) -> None:
    try:
        program.code = compile_library(program.text, [o for o in options if o.startswith("-D")])
    except RuntimeError as error:
        raise NVRTCError(str(error)) from None


class NVRTCError(RuntimeError):
    """What the compiler says."""


def _create(text: str, name: str, headers: Any, names: Any) -> _Program:
    return _Program(text)


def _version() -> tuple[str, str]:
    ours = (*sorted(HEADER.parent.glob("*.hpp")), HEADER.with_name("translate.py"))
    return "emulator", xxhash.xxh3_64_hexdigest(b"".join(path.read_bytes() for path in ours))


def install() -> None:
    """Be the module `cupy` from now on."""
    this = sys.modules[__name__]
    for name in FUNCTIONS:
        setattr(this, name, _function(name))
    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda device: {"name": b"emulated"},
        memGetInfo=lambda: (MEMORY, MEMORY),
        memcpyAsync=_copy,
        memcpyHostToDevice=1,
    )
    nvrtc = SimpleNamespace(
        NVRTCError=NVRTCError,
        compileProgram=_compile,
        createProgram=_create,
        destroyProgram=lambda program: None,
        getCUBIN=lambda program: program.code,
        getProgramLog=lambda program: "",
        getVersion=_version,
    )
    occupancy = SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *given: 1)
    cuda = ModuleType("cupy.cuda")
    cuda.__dict__.update(
        Device=Device, Event=Event, ExternalStream=Stream, Stream=Stream, runtime=runtime,
        nvrtc=nvrtc, driver=occupancy, get_current_stream=get_current_stream,
        get_elapsed_time=get_elapsed_time, alloc_pinned_memory=alloc_pinned_memory,
    )  # fmt: skip
    this.cuda = cuda  # type: ignore[attr-defined]
    pool = SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)
    this.get_default_memory_pool = lambda: pool  # type: ignore[attr-defined]
    sys.modules["cupy"] = this
    sys.modules["cupy.cuda"] = cuda
