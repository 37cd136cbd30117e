"""What the launches of sampling share: logits, memory to work in, and arguments of kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

ALIGNMENT = 256
_DEFAULT_STREAMS = 2  # the largest number that stands for one: these cannot be captured

ELEMENTS = {"float32": 0, "float16": 1, "bfloat16": 2}


@dataclass(frozen=True)
class Matrix:
    """Logits on the device: an address, the row stride in elements, and the shape."""

    pointer: int
    stride: int
    rows: int
    size: int
    element: int  # 0 float32, 1 float16, 2 bfloat16
    owner: Any  # keeps the memory alive

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.element else 4

    @property
    def source(self) -> tuple[np.uint64, np.int64]:
        """Address and stride as kernels take them."""
        return np.uint64(self.pointer), np.int64(self.stride)

    def overlaps(self, other: Matrix) -> bool:
        """Whether the two may share memory, judged by their first and last elements."""
        first, stop = self._extent()
        other_first, other_stop = other._extent()
        return first < other_stop and other_first < stop

    def _extent(self) -> tuple[int, int]:
        ends = self.pointer, self.pointer + (self.rows - 1) * self.stride * self.itemsize
        return min(ends), max(ends) + self.size * self.itemsize


class Workspace:
    """Device memory for one selection at a time, grown as needed.

    One workspace belongs to one stream. A captured graph goes on using the memory of its
    workspace, which must live as long, and be used before the capture with the same arguments.
    It holds all else that the graph reads and writes, too.
    """

    def __init__(self) -> None:
        """Without memory yet."""
        self._memory: Any = None
        self._captured: list[Any] = []

    @property
    def bytes(self) -> int:
        """How much memory it holds."""
        return 0 if self._memory is None else int(self._memory.nbytes)

    def hold_if_captured(self, launch: Any) -> None:
        """Hold a selection's arrays where it is not done yet but captured into a graph."""
        stream = cupy.cuda.get_current_stream()
        if stream.ptr > _DEFAULT_STREAMS and stream.is_capturing():
            self._captured.append(launch)

    def reserve(self, sizes: list[int]) -> list[int]:
        """Addresses of areas of these sizes."""
        offsets = [0]
        for size in sizes:
            offsets.append(offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        if self.bytes < offsets[-1]:
            self._memory = cupy.empty(offsets[-1], np.uint8)
        base = self._memory.data.ptr if offsets[-1] else 0
        return [base + offset if size else 0 for offset, size in zip(offsets, sizes, strict=False)]


def list_capacity(size: int) -> int:
    """How many entries of a row can be listed: half a byte of memory an element."""
    return min(size, max(4096, size // 16))


def in_parts(rows: int, size: int, blocks: int, longest: int | None = None) -> tuple[int, int]:
    """Length and number of a row's parts, so that all rows together make about `blocks`."""
    length = math.ceil(rows * size / blocks / 4096) * 4096
    length = min(max(length, 4096), -(-size // 4096) * 4096, longest or size + 4096)
    return length, -(-size // length)


def on_device(value: Any) -> bool:
    """Whether it is an array on the device, not a number."""
    return hasattr(value, "data") and hasattr(value.data, "ptr")


def address(array: Any) -> np.uint64:
    """Of an array on the device; 0 of anything else."""
    return np.uint64(array.data.ptr if on_device(array) else 0)


def either(value: Any, scalar: Any) -> tuple[Any, Any]:
    """Arguments for an array on the device or one number for all rows."""
    return (address(value), scalar(0)) if on_device(value) else (np.uint64(0), scalar(value))
