"""Exact top-k and top-p of logits on the GPU: launches, and the memory that they work in.

Nothing here waits for the device. Kernels run on CuPy's current stream. The meaning is that of
flashtrie.sampling, which checks the arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from flashtrie.gpu.sampling_kernels import LARGE_RESOLVE_BYTES, RESOLVE_BYTES, Defines, kernel

ROW_BYTES = 176  # struct Row of sampling.cuh
BINS = 4096
KEPT = 2048
SLICE = 512
TILE = 2048
SAMPLE = 4096
LARGE = 1 << 19  # rows from here on are sampled twice as densely
FINALISTS = 64
ALIGNMENT = 256

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


@dataclass(frozen=True)
class Wanted:
    """Which results to make.

    `masked`: where to, with the logits' element type. `width`: of the candidates.
    """

    masked: Matrix | None = None
    width: int | None = None
    in_order: bool = False
    seeds: Any = None  # int, or int64 [B] on the device
    positions: Any = None  # None is the row number


@dataclass(frozen=True)
class Selected:
    """Device arrays: counts int64, log_mass float64, nan uint8, [B] each, and what was wanted."""

    counts: Any
    log_mass: Any
    nan: Any
    indices: Any = None
    values: Any = None
    tokens: Any = None
    logprobs: Any = None


class Workspace:
    """Device memory for one selection at a time, grown as needed.

    One workspace belongs to one stream. A captured graph goes on using the memory of its
    workspace, which must live as long, and be used before the capture with the same arguments.
    """

    _memory: Any = None

    @property
    def bytes(self) -> int:
        """How much memory it holds."""
        return 0 if self._memory is None else int(self._memory.nbytes)

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


def select(
    logits: Matrix,
    k: Any,
    p: Any,
    temperature: Any,
    wanted: Wanted,
    *,
    by_sort: bool = False,
    workspace: Workspace | None = None,
    by_pivot: bool = False,
    variant: Defines = (),
) -> Selected:
    """Select, and make the wanted results. Reads each row once, or twice where p is deep.

    `k` int or int64 [B], `p` and `temperature` float or float64 [B], arrays on the device.
    `by_pivot` sends every row through the general method, which flags no NaN; `variant` are the
    macros that choose among its forms (sampling_pivot.cuh), for the ablation.
    """
    workspace = workspace or Workspace()
    launch = _Launch(logits, k, p, temperature, wanted, by_sort, workspace, variant)
    launch.find(by_pivot)
    launch.give()
    return launch.selected


class _Launch:
    """The launches of one selection."""

    def __init__(
        self,
        logits: Matrix,
        k: Any,
        p: Any,
        temperature: Any,
        wanted: Wanted,
        by_sort: bool,
        workspace: Workspace,
        variant: Defines,
    ) -> None:
        self.logits, self.wanted, self.by_sort = logits, wanted, by_sort
        self.k, self.p, self.temperature = k, p, temperature
        self.variant = variant
        rows, size = logits.rows, logits.size
        self.device = cupy.cuda.Device()
        self.processors = processors = self.device.attributes["MultiProcessorCount"]
        self.sample = SAMPLE if size < LARGE else 2 * SAMPLE
        self.short = _always_short(k, p, temperature, size) or size <= self.sample
        self.sortable = _always_short(k, p, temperature, size) or size <= KEPT
        self.capacity = list_capacity(size)
        self.slices = 0 if self.short else -(-size // SLICE)
        self.chunk, self.chunks = _chunks(rows, size, processors * (8 if self.short else 5))
        few = self.short and (_on_device(k) or k <= 256)
        # Of a block that resolves a row: threads, and bytes for its list.
        self.threads = 256 if few else 512 if self.short or size < LARGE else 1024
        self.list_bytes = RESOLVE_BYTES if self.short or size < LARGE else LARGE_RESOLVE_BYTES
        width = wanted.width or 0
        pass_twice = wanted.in_order and width > TILE
        drawing = wanted.seeds is not None
        addresses = workspace.reserve(
            [
                rows * ROW_BYTES,
                0 if self.short else rows * BINS * 4,
                rows * self.capacity * 8,
                rows * self.slices * 16,
                rows * KEPT * 8 if wanted.masked else 0,
                rows * FINALISTS * 16 if drawing and not self.short else 0,
                rows * self.chunks * 8 if width else 0,
                rows * width * 8,
                rows * width * 8 if pass_twice else 0,
            ]
        )
        (
            self.rows,
            self.bins,
            self.lists,
            self.partial,
            self.kept,
            self.finalists,
            self.numbers,
            self.places,
            self.merged,
        ) = addresses
        value_type = np.float32 if logits.element == 0 else np.uint16
        self.selected = Selected(
            counts=cupy.empty(rows, np.int64),
            log_mass=cupy.empty(rows, np.float64),
            nan=cupy.empty(rows, np.uint8),
            indices=cupy.empty((rows, width), np.int64) if width else None,
            values=cupy.empty((rows, width), value_type) if width else None,
            tokens=cupy.empty(rows, np.int64) if drawing else None,
            logprobs=cupy.empty(rows, np.float32) if drawing else None,
        )
        seeds, positions = wanted.seeds, wanted.positions
        chosen = self.selected
        self.outputs = (
            _address(chosen.counts),
            _address(chosen.log_mass),
            _address(chosen.nan),
            _address(chosen.indices),
            _address(chosen.values),
            np.int64(width),
            _address(chosen.tokens),
            _address(chosen.logprobs),
            _address(seeds),
            _address(positions),
            np.int64(0 if seeds is None or _on_device(seeds) else seeds),
            np.int64(-1 if positions is None or _on_device(positions) else positions),
        )

    def find(self, by_pivot: bool) -> None:
        """Each row's boundary."""
        size, blocks = np.int64(self.logits.size), self.logits.rows
        listing = (np.uint64(self.lists), np.uint32(self.capacity))
        table = np.uint64(self.rows)
        masked, wanted = self.wanted.masked, self.wanted
        target = (
            np.uint64(masked.pointer if masked else 0),
            np.int64(masked.stride if masked else 0),
        )
        self._run(
            "sampling_prepare.cu",
            "prepare",
            blocks,
            512,
            *self._source(),
            size,
            table,
            np.uint64(self.bins),
            *_either(self.k, np.int64),
            *_either(self.p, np.float64),
            *_either(self.temperature, np.float64),
            np.int64(KEPT),
            np.int32(self.sample),
            np.int32(by_pivot),
        )
        parts = (np.int64(self.chunk), np.uint32(self.chunks))
        grid = blocks * self.chunks
        sums = (np.uint64(self.partial), np.int64(self.slices))
        if by_pivot:
            pass
        elif self.short:
            self._run("sampling_scan.cu", "scan", grid, 256, *self._source(), size, table,
                      *listing, *parts)  # fmt: skip
        else:
            self._run("sampling_scan.cu", "scan_bins", grid, 256, *self._source(), size, table,
                      np.uint64(self.bins), *listing, *parts)  # fmt: skip
            self._run("sampling_window.cu", "window", blocks, 512, table, np.uint64(self.bins),
                      *listing)  # fmt: skip
            chunks = min(-(-self.slices // 8), max(1, self.processors * 32 // blocks))
            name = "sweep_mask" if masked else "sweep" if wanted.seeds is None else "sweep_draw"
            self._run("sampling_sweep.cu", name, blocks * chunks, 256, *self._source(), size, table,
                      *listing, *sums, np.uint32(chunks), *target, np.uint64(self.finalists),
                      *self.outputs[-4:])  # fmt: skip
        self._run("sampling_resolve.cu", "resolve", blocks, self.threads, *self._source(), size,
                  table, *listing, *sums, np.uint64(self.kept), *target,
                  np.uint64(self.finalists), np.int32(self.by_sort),
                  np.uint32(self.list_bytes // 8), *self.outputs,
                  shared=self.list_bytes)  # fmt: skip

    def give(self) -> None:
        """The wanted results that the boundary's search has not given."""
        wanted, size, blocks = self.wanted, np.int64(self.logits.size), self.logits.rows
        table = np.uint64(self.rows)
        parts = (np.int64(self.chunk), np.uint32(self.chunks))
        grid = blocks * self.chunks
        # Short lists are sorted on chip; only ties can make them longer.
        if wanted.width and not (self.short and not self.by_sort and self.sortable):
            self._candidates(parts, grid, wanted.width)
        if wanted.masked:
            target = wanted.masked
            self._run("sampling_write.cu", "mask", grid, 512, *self._source(), size, table,
                      np.uint64(self.kept), np.uint64(target.pointer), np.int64(target.stride),
                      *parts)  # fmt: skip

    def _candidates(self, parts: tuple[Any, ...], grid: int, width: int) -> None:
        size, blocks, table = np.int64(self.logits.size), self.logits.rows, np.uint64(self.rows)
        places, numbers, wide = np.uint64(self.places), np.uint64(self.numbers), np.int64(width)
        self._run("sampling_resolve.cu", "shorten", blocks, self.threads, *self._source(), size,
                  table, wide)  # fmt: skip
        self._run("sampling_write.cu", "count_kept", grid, 512, *self._source(), size, table,
                  numbers, *parts)  # fmt: skip
        self._run("sampling_write.cu", "gather", grid, 512, *self._source(), size, table, numbers,
                  *parts, places, wide)  # fmt: skip
        chunks = max(1, min(-(-width // 512), 2048 // blocks))
        if self.wanted.in_order or width <= TILE:
            tiles = -(-width // TILE)
            self._run("sampling_sort.cu", "sort_tiles", blocks * tiles, 1024, table, places, wide,
                      np.uint32(tiles))  # fmt: skip
            run, other = TILE, np.uint64(self.merged)
            while run < width:
                self._run("sampling_sort.cu", "merge", blocks * chunks, 512, table, places, other,
                          wide, np.int64(run), np.uint32(chunks))  # fmt: skip
                places, other, run = other, places, 2 * run
        self._run("sampling_sort.cu", "unpack", blocks * chunks, 512, *self._source(), table,
                  places, _address(self.selected.indices), _address(self.selected.values), wide,
                  np.uint32(chunks))  # fmt: skip

    def _source(self) -> tuple[Any, Any]:
        return np.uint64(self.logits.pointer), np.int64(self.logits.stride)

    def _run(
        self, file: str, name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0
    ) -> None:
        defines: Defines = ()
        if file == "sampling_resolve.cu":
            defines = (("THREADS", self.threads), *self.variant)
        function = kernel(file, name, self.logits.element, self.device.id, defines)
        function((blocks,), (threads,), arguments, shared_mem=shared)


def _always_short(k: Any, p: Any, temperature: Any, size: int) -> bool:
    """Whether every row is known to keep a short list: k up to 2,048, or a single entry."""
    if not _on_device(k) and 0 < k <= KEPT and k < size:
        return True
    if not _on_device(p) and p <= 0:
        return True
    return not _on_device(temperature) and temperature == 0


def _chunks(rows: int, size: int, blocks: int) -> tuple[int, int]:
    """Length and number of a row's parts, so that all rows together make about `blocks`."""
    length = math.ceil(rows * size / blocks / 4096) * 4096
    length = min(max(length, 4096), -(-size // 4096) * 4096)
    return length, -(-size // length)


def _on_device(value: Any) -> bool:
    return hasattr(value, "data") and hasattr(value.data, "ptr")


def _address(array: Any) -> np.uint64:
    return np.uint64(array.data.ptr if _on_device(array) else 0)


def _either(value: Any, scalar: Any) -> tuple[Any, Any]:
    """Arguments for an array on the device or one number for all rows."""
    return (_address(value), scalar(0)) if _on_device(value) else (np.uint64(0), scalar(value))
