"""The kernels of sampling as launches need them: by element type, with their shared memory."""

from __future__ import annotations

import functools
from typing import Any

import cupy

from flashtrie.gpu.compiler import load

# Shared memory for the list of a row that a block resolves; two blocks fit, or one large one.
RESOLVE_BYTES = 64 << 10
LARGE_RESOLVE_BYTES = 128 << 10

Defines = tuple[tuple[str, int], ...]


@functools.cache
def kernel(file: str, name: str, element: int, device: int, defines: Defines = ()) -> Any:
    """A kernel of a file, for an element type (0 float32, 1 float16, 2 bfloat16).

    The first use on a `device`, the current one, compiles for some seconds; later ones, also of
    other processes, find the machine code on disk.
    """
    function = load(file, name, {"ELEMENT": element, **dict(defines)})
    if name == "resolve":
        large = ("THREADS", 512) in defines
        function.max_dynamic_shared_size_bytes = LARGE_RESOLVE_BYTES if large else RESOLVE_BYTES
    elif file == "sampling_hold.cu":
        most = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        function.max_dynamic_shared_size_bytes = most - function.shared_size_bytes
    return function
