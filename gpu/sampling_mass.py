"""Launches that select by mass: top-p of rows on chip or of any length, and the best of a softmax.

Both ways to top-p count a row's mass in the same bins and so find the same boundary, bit by bit
but where more than 1,024 entries share the bin of the boundary.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from flashtrie.gpu.sampling_arguments import Matrix, address, either, in_parts, list_capacity
from flashtrie.gpu.sampling_kernels import kernel

LEAST = 16384  # entries of a row: below, bins would take more memory than the row
MOST = 1 << 23  # more are left to the pivot search by the kernels

_MASS_BYTES = 96  # struct Mass of sampling_mass.cuh
_BINS_BYTES = 8 << 12
_THREADS = 512
_LONGEST_PART = 49152  # a bin's part of it stays below 2^32
_BLOCKS = 3  # of a multiprocessor

_CLUSTER = 8
_CLUSTERS_SINCE = 90  # compute capability
_WORK_BYTES = {512: 32768, 1024: 40960}  # WORK_BYTES of sampling_hold.cu
_STATIC_BYTES = 3072  # what its static variables take, at most
_TWO_BLOCKS = 115712  # shared memory of a block of which two fit a multiprocessor


def held_shape(logits: Matrix, device: Any) -> tuple[int, int, int] | None:
    """Elements of a block, threads, and bytes of shared memory; None where rows do not fit."""
    if int(device.compute_capability) < _CLUSTERS_SINCE:
        return None
    part = -(-logits.size // (_CLUSTER * 32)) * 32
    if part > _LONGEST_PART:
        return None
    for threads, most in ((512, _TWO_BLOCKS), (1024, 1 << 30)):
        room = _WORK_BYTES[threads] + part * logits.itemsize
        least = min(most, device.attributes["MaxSharedMemoryPerBlockOptin"])
        if room + _STATIC_BYTES <= least:
            return part, threads, room
    return None


class Held:
    """Top-p in one launch, each row on the chip of eight blocks: `sampling_hold.cu`."""

    def __init__(self, logits: Matrix, p: Any, temperature: Any, shape: tuple[int, int, int]):
        """`shape` is that of held_shape."""
        self._logits, self._shape = logits, shape
        self._limits = (*either(p, np.float64), *either(temperature, np.float64))

    @staticmethod
    def sizes() -> list[int]:
        """Bytes of the areas that it works in: none."""
        return []

    def keep(
        self, result: str, by_sort: bool, rows: int, target: Matrix | None, outputs: tuple[Any, ...]
    ) -> None:
        """Select. `result` is "find", which fills `rows`, "mask" or "draw"."""
        part, threads, room = self._shape
        name = "hold" if result == "find" else f"hold_{result}"
        logits = self._logits
        function = kernel(
            "sampling_hold.cu", name, logits.element, cupy.cuda.Device().id, (("THREADS", threads),)
        )
        function(
            (logits.rows * _CLUSTER,),
            (threads,),
            (
                *logits.source,
                np.int64(logits.size),
                np.int64(part),
                *self._limits,
                np.int32(by_sort),
                np.uint64(rows),
                *_target(target),
                *outputs,
            ),
            shared_mem=room,
        )


class Masses:
    """Rows in parts, their masses in bins of device memory: `sampling_mass.cu`."""

    def __init__(self, logits: Matrix, p: Any, temperature: Any, longest_list: int = 0):
        """`longest_list`: of what is listed, at least."""
        self.logits = logits
        self._p, self._temperature = either(p, np.float64), either(temperature, np.float64)
        device = cupy.cuda.Device()
        self._device = device.id
        blocks = device.attributes["MultiProcessorCount"] * _BLOCKS
        self.chunk, self.chunks = in_parts(logits.rows, logits.size, blocks, _LONGEST_PART)
        self.capacity = max(list_capacity(logits.size), longest_list)
        self._rows = self._bins = self._bounds = self._lists = self._draws = 0

    def sizes(self) -> list[int]:
        """Bytes of the areas that it works in."""
        rows = self.logits.rows
        blocks = rows * self.chunks
        return [rows * _MASS_BYTES, rows * _BINS_BYTES, blocks * 16, rows * self.capacity * 8,
                blocks * 16]  # fmt: skip

    def place(self, addresses: list[int]) -> None:
        """Where these areas are."""
        self._rows, self._bins, self._bounds, self._lists, self._draws = addresses

    @property
    def table(self) -> np.uint64:
        """Address of the rows' masses."""
        return np.uint64(self._rows)

    def find(self, k: int = 0, *, exact: bool = False) -> None:
        """Each row's mass, and the bin of its boundary: of p, or where `k` is given of the k best.

        `exact`: the mass as a float64 sum gives it, for `best`.
        """
        bins, bounds = np.uint64(self._bins), np.uint64(self._bounds)
        self._run("sampling_mass.cu", "extremes", self.table, bins, bounds)
        name = "masses_exact" if exact else "masses"
        self._run("sampling_mass.cu", name, self.table, bins, bounds,
                  np.uint32(self.capacity), *self._p, *self._temperature, np.int64(k))  # fmt: skip

    def keep(
        self, result: str, by_sort: bool, rows: int, target: Matrix | None, outputs: tuple[Any, ...]
    ) -> None:
        """Select. `result` is "find", which fills `rows`, "mask" or "draw"."""
        self.find()
        name = "keep" if result == "find" else f"keep_{result}"
        self._run("sampling_mass.cu", name, self.table, *self._lists_and_room, *self._p,
                  *self._temperature, np.int32(by_sort), np.uint64(rows), *_target(target),
                  np.uint64(self._draws), *outputs)  # fmt: skip

    def best(
        self, whole: Masses, k: int, wrong: Any, places: int, results: int, tokens: Any,
        logprobs: Any,
    ) -> None:  # fmt: skip
        """The k best log-probabilities under the softmax of `whole`, after `find(k, exact=True)`.

        In order in `tokens` and `logprobs`, or where `places` is an address there, unordered.
        """
        self._run("sampling_best.cu", "best", self.table, whole.table, *self._lists_and_room,
                  np.int64(k), address(wrong),
                  np.uint64(places), np.uint64(results), address(tokens), address(logprobs),
                  np.int64(tokens.shape[-1]))  # fmt: skip

    @property
    def _lists_and_room(self) -> tuple[np.uint64, np.uint32]:
        return np.uint64(self._lists), np.uint32(self.capacity)

    def _run(self, file: str, name: str, *arguments: Any) -> None:
        logits = self.logits
        parts = (*logits.source, np.int64(logits.size), np.int64(self.chunk))
        function = kernel(file, name, logits.element, self._device)
        blocks = logits.rows * self.chunks
        function((blocks,), (_THREADS,), (*parts, np.uint32(self.chunks), *arguments))


def _target(target: Matrix | None) -> tuple[np.uint64, np.int64]:
    return target.source if target else (np.uint64(0), np.int64(0))
