"""The kernels of sampling as launches need them: by element type, with their shared memory."""

from __future__ import annotations

import functools
from typing import Any

import cupy

from flashtrie.gpu.compiler import load
from flashtrie.gpu.sampling_plan import resolve_bytes

Defines = tuple[tuple[str, int], ...]


@functools.cache
def block_bytes(device: int) -> int:
    """Shared memory that a block of a device may have."""
    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


@functools.cache
def kernel(file: str, name: str, element: int, device: int, defines: Defines = ()) -> Any:
    """A kernel of a file, for an element type (0 float32, 1 float16, 2 bfloat16).

    The first use on a `device`, the current one, compiles for some seconds; later ones, also of
    other processes, find the machine code on disk.
    """
    function = load(file, name, {"ELEMENT": element, **dict(defines)})
    if name == "resolve":
        large = ("THREADS", 512) in defines
        function.max_dynamic_shared_size_bytes = resolve_bytes(large, block_bytes(device))
    elif file == "sampling_hold.cu":
        most = block_bytes(device)
        function.max_dynamic_shared_size_bytes = most - function.shared_size_bytes
    return function
