"""Shared memory of the kernels of sampling that take what the device has. Arithmetic alone."""

from __future__ import annotations

# What static variables of a file's kernels take, at most: `make kernels` holds it.
STATIC_BYTES = {"sampling_resolve.cu": 24 << 10, "sampling_hold.cu": 14 << 10}

# What a block may have on compute capability 8.6 and 8.9, the least of those that are supported.
LEAST_BLOCK_BYTES = 99 << 10

# For the list of a row that a block resolves: two such blocks fit, or one large one.
_RESOLVE_BYTES = 64 << 10
_LARGE_RESOLVE_BYTES = 128 << 10


def resolve_bytes(large: bool, block_bytes: int) -> int:
    """Dynamic shared memory of `resolve` where a block may have `block_bytes`, static included.

    A list that is longer stays in device memory.
    """
    wanted = _LARGE_RESOLVE_BYTES if large else _RESOLVE_BYTES
    return min(wanted, block_bytes - STATIC_BYTES["sampling_resolve.cu"])
