"""Launches that select by mass: top-p of rows on chip or of any length, and the best of a softmax.

Both ways to top-p count a row's entries in the same bins and add up the same masses, and so find
the same boundary, bit by bit.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from flashtrie.gpu.sampling_arguments import Matrix, address, either, list_capacity
from flashtrie.gpu.sampling_kernels import block_bytes, kernel
from flashtrie.gpu.sampling_plan import STATIC_BYTES

LEAST = 16384  # entries of a row: below, bins would take much of the row's memory
MOST = 1 << 23  # more are left to the pivot search by the kernels

_MASS_BYTES = 120  # struct Mass of sampling_mass.cuh
_BINS_BYTES = 4 << 12
_THREADS = 512
_LONGEST_PART = 1 << 18  # entries, so that their sum in 2^-45 stays below 2^64
_UNIT = 256  # a part has a multiple of it, so that its packs are those of the row
_FINALISTS_BYTES = 8 << 6
_BLOCKS = 2  # of a multiprocessor that are resident

_CLUSTER = 8
_CLUSTERS_SINCE = 90  # compute capability
_WORK_BYTES = 34816  # WORK_BYTES of sampling_hold.cu


def few_rows(logits: Matrix, device: Any) -> bool:
    """Whether clusters need not share multiprocessors: else separate launches are faster."""
    return bool(logits.rows * _CLUSTER * 2 <= device.attributes["MultiProcessorCount"])


def held_shape(logits: Matrix, device: Any) -> tuple[int, int] | None:
    """Elements of a block, and bytes of shared memory; None where rows do not fit."""
    if int(device.compute_capability) < _CLUSTERS_SINCE:
        return None
    part = -(-logits.size // (_CLUSTER * 32)) * 32
    room = _WORK_BYTES + part * logits.itemsize
    room_and_static = room + STATIC_BYTES["sampling_hold.cu"]
    return (part, room) if room_and_static <= block_bytes(device.id) else None


class Held:
    """Top-p in one launch, each row on the chip of eight blocks: `sampling_hold.cu`."""

    def __init__(self, logits: Matrix, p: Any, temperature: Any, shape: tuple[int, int]):
        """`shape` is that of held_shape."""
        self._logits, self._shape = logits, shape
        self._limits = (*either(p, np.float64), *either(temperature, np.float64))
        self._capacity = list_capacity(logits.size)
        self._lists = 0

    def sizes(self) -> list[int]:
        """Bytes of the areas that it works in: of lists that are too long for the chip."""
        return [self._logits.rows * self._capacity * 8]

    def place(self, addresses: list[int]) -> None:
        """Where these areas are."""
        (self._lists,) = addresses

    def keep(
        self, result: str, by_sort: bool, rows: int, target: Matrix | None, outputs: tuple[Any, ...]
    ) -> None:
        """Select. `result` is "find", which fills `rows`, "mask" or "draw"."""
        part, room = self._shape
        name = "hold" if result == "find" else f"hold_{result}"
        logits = self._logits
        function = kernel("sampling_hold.cu", name, logits.element, cupy.cuda.Device().id)
        function(
            (logits.rows * _CLUSTER,),
            (_THREADS,),
            (
                *logits.source,
                np.int64(logits.size),
                np.int64(part),
                *self._limits,
                np.int32(by_sort),
                np.uint64(rows),
                *_target(target),
                np.uint64(self._lists),
                np.uint32(self._capacity),
                *outputs,
            ),
            shared_mem=room,
        )


class Masses:
    """Rows in parts, counts by bins in device memory: `sampling_mass.cu` and `_keep.cu`."""

    def __init__(self, logits: Matrix, p: Any, temperature: Any, longest_list: int = 0):
        """`longest_list`: of what is listed, at least."""
        self.logits = logits
        self._p, self._temperature = either(p, np.float64), either(temperature, np.float64)
        device = cupy.cuda.Device()
        self._device = device.id
        processors = device.attributes["MultiProcessorCount"]
        self._part, self._parts = _resident_parts(logits, processors * _BLOCKS)
        self.capacity = max(list_capacity(logits.size), longest_list)
        self._rows = self._bins = self._bounds = self._lists = self._finalists = 0

    def sizes(self) -> list[int]:
        """Bytes of the areas that it works in."""
        rows = self.logits.rows
        blocks = rows * self._parts
        return [rows * _MASS_BYTES, rows * _BINS_BYTES, blocks * 16, rows * self.capacity * 8,
                rows * _FINALISTS_BYTES]  # fmt: skip

    def place(self, addresses: list[int]) -> None:
        """Where these areas are."""
        self._rows, self._bins, self._bounds, self._lists, self._finalists = addresses

    @property
    def table(self) -> np.uint64:
        """Address of the rows' masses."""
        return np.uint64(self._rows)

    def find_best(self, k: int, whole: Masses) -> None:
        """Each row's softmax, as a float64 sum gives it, and the bin of the k-th best.

        Log-probabilities are by the softmax of `whole`, which was found before, or is this one.
        """
        self._run("sampling_mass.cu", "extremes", self.table, *self._bins_and_bounds)
        self._run("sampling_mass.cu", "masses_exact", self.table, *self._bins_and_bounds,
                  whole.table, np.int64(k))  # fmt: skip

    def keep(
        self, result: str, by_sort: bool, rows: int, target: Matrix | None, outputs: tuple[Any, ...]
    ) -> None:
        """Select. `result` is "find", which fills `rows`, "mask" or "draw"."""
        limits = (*self._p, *self._temperature)
        self._run("sampling_mass.cu", "extremes", self.table, *self._bins_and_bounds)
        drawing = np.int32(result == "draw")
        self._run("sampling_mass.cu", "masses", *self._bins_and_bounds, *limits, drawing)
        kind = "" if result == "find" else f"_{result}"
        for step in ("keep", "finish"):
            self._run("sampling_keep.cu", step + kind, self.table, *self._bins_and_bounds,
                      *self._lists_and_room, *limits, np.int32(by_sort), np.uint64(rows),
                      *_target(target), np.uint64(self._finalists), *outputs)  # fmt: skip

    def best(
        self, whole: Masses, k: int, wrong: Any, places: int, results: int, tokens: Any,
        logprobs: Any,
    ) -> None:  # fmt: skip
        """The k best log-probabilities under the softmax of `whole`, after `find_best(k, whole)`.

        In order in `tokens` and `logprobs`, or where `places` is an address there, unordered.
        """
        self._run("sampling_best.cu", "best", self.table, whole.table, *self._lists_and_room,
                  np.int64(k), address(wrong),
                  np.uint64(places), np.uint64(results), address(tokens), address(logprobs),
                  np.int64(tokens.shape[-1]))  # fmt: skip

    @property
    def _bins_and_bounds(self) -> tuple[np.uint64, np.uint64]:
        return np.uint64(self._bins), np.uint64(self._bounds)

    @property
    def _lists_and_room(self) -> tuple[np.uint64, np.uint32]:
        return np.uint64(self._lists), np.uint32(self.capacity)

    def _run(self, file: str, name: str, *arguments: Any) -> None:
        logits = self.logits
        part, parts = (logits.size, 1) if name.startswith("finish") else (self._part, self._parts)
        row = (*logits.source, np.int64(logits.size), np.int64(part), np.uint32(parts))
        function = kernel(file, name, logits.element, self._device)
        function((logits.rows * parts,), (_THREADS,), (*row, *arguments))


def _resident_parts(logits: Matrix, blocks: int) -> tuple[int, int]:
    """Length and number of a row's parts, so that all are resident where `blocks` suffice."""
    number = max(1, blocks // logits.rows, -(-logits.size // _LONGEST_PART))
    length = -(-logits.size // (number * _UNIT)) * _UNIT
    return length, -(-logits.size // length)


def _target(target: Matrix | None) -> tuple[np.uint64, np.int64]:
    return target.source if target else (np.uint64(0), np.int64(0))
