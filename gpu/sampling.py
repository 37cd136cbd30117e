"""Exact top-k and top-p of logits on the GPU: launches, and the memory that they work in.

Nothing here waits for the device. Kernels run on CuPy's current stream. The meaning is that of
flashtrie.sampling, which checks the arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from flashtrie.formats.errors import InputError
from flashtrie.gpu.sampling_arguments import (
    ELEMENTS,
    Matrix,
    Workspace,
    address,
    either,
    in_parts,
    list_capacity,
    on_device,
)
from flashtrie.gpu.sampling_kernels import Defines, block_bytes, kernel
from flashtrie.gpu.sampling_mass import LEAST, MOST, Held, Masses, few_rows, held_shape
from flashtrie.gpu.sampling_plan import resolve_bytes

__all__ = ["ELEMENTS", "Matrix", "Selected", "Wanted", "Workspace", "select"]

ROW_BYTES = 176  # struct Row of sampling.cuh
BINS = 4096
KEPT = 2048
SLICE = 512
TILE = 2048
SAMPLE = 4096
LARGE = 1 << 19  # rows from here on are sampled twice as densely
FINALISTS = 64
# How top-p alone is selected, where rows are neither short nor of a k: the first that fits. Without
# any, by bins of counts as for a large k.
TOP_P_METHODS: tuple[str, ...] = ("hold", "mass")


@dataclass(frozen=True)
class Wanted:
    """Which results to make.

    `masked`: where to, with the logits' element type. `width`: of the candidates.
    """

    masked: Matrix | None = None
    width: int | None = None
    in_order: bool = False
    seeds: Any = None  # int of 64 bits, signed, or int64 [B] on the device
    positions: Any = None  # the same; None is the row number


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
    methods: tuple[str, ...] | None = None,
) -> Selected:
    """Select, and make the wanted results. Reads a row once to three times, by its length and p.

    `k` int or int64 [B], `p` and `temperature` float or float64 [B], arrays on the device.
    `methods` replaces TOP_P_METHODS. `by_pivot` sends every row through the general method, which
    flags no NaN; `variant` are the macros that choose among its forms (sampling_pivot.cuh), for the
    ablation.
    """
    if methods is None:
        methods = TOP_P_METHODS
    masked = wanted.masked
    if masked and (masked.element, masked.rows, masked.size) != (
        logits.element,
        logits.rows,
        logits.size,
    ):
        raise InputError("a mask has the dtype and shape of its logits")
    launch = _Launch(
        logits, k, p, temperature, wanted, by_sort, variant, by_pivot, () if by_pivot else methods
    )
    workspace = workspace or Workspace()
    launch.reserve(workspace)
    if launch.top_p:
        launch.find_top_p(launch.top_p)
    else:
        launch.find()
    launch.give()
    workspace.hold_if_captured(launch)
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
        variant: Defines,
        by_pivot: bool,
        methods: tuple[str, ...],
    ) -> None:
        self.logits, self.wanted, self.by_sort = logits, wanted, by_sort
        self.k, self.p, self.temperature = k, p, temperature
        self.variant, self.by_pivot = variant, by_pivot
        rows, size = logits.rows, logits.size
        self.device = cupy.cuda.Device()
        self.processors = processors = self.device.attributes["MultiProcessorCount"]
        self.sample = SAMPLE if size < LARGE else 2 * SAMPLE
        self.short = _always_short(k, p, temperature, size) or size <= self.sample
        self.sortable = _always_short(k, p, temperature, size) or size <= KEPT
        self.top_p = self._top_p(methods)
        self.capacity = list_capacity(size)
        self.slices = 0 if self.short else -(-size // SLICE)
        self.chunk, self.chunks = in_parts(rows, size, processors * (8 if self.short else 5))
        few = self.short and (on_device(k) or k <= 256)
        # Of a block that resolves a row: threads, and bytes for its list.
        self.threads = dict(variant).get("THREADS", 256 if few else 512)
        long = not self.short and size >= LARGE
        self.list_bytes = resolve_bytes(long, block_bytes(self.device.id))
        # A mask elsewhere than the logits is filled while these are read.
        masked = wanted.masked
        self.filled = bool(self.short and not by_pivot and masked and not masked.overlaps(logits))
        width = wanted.width or 0
        drawing = wanted.seeds is not None
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
            address(chosen.counts),
            address(chosen.log_mass),
            address(chosen.nan),
            address(chosen.indices),
            address(chosen.values),
            np.int64(width),
            address(chosen.tokens),
            address(chosen.logprobs),
            address(seeds),
            address(positions),
            np.int64(0 if seeds is None or on_device(seeds) else seeds),
            np.int64(0 if positions is None or on_device(positions) else positions),
            np.int32(positions is None),
        )

    def _top_p(self, methods: tuple[str, ...]) -> Held | Masses | None:
        """The method for rows of p alone, a single result wanted; None if they are not such."""
        wanted, size = self.wanted, self.logits.size
        several = sum(map(bool, (wanted.masked, wanted.width, wanted.seeds is not None))) > 1
        with_k = on_device(self.k) or 0 < self.k < size
        if self.short or several or with_k or not LEAST <= size <= MOST:
            return None
        shape = held_shape(self.logits, self.device)
        by_mass = "mass" in methods
        if shape and "hold" in methods and (few_rows(self.logits, self.device) or not by_mass):
            return Held(self.logits, self.p, self.temperature, shape)
        return Masses(self.logits, self.p, self.temperature) if by_mass else None

    def reserve(self, workspace: Workspace) -> None:
        """Take the memory to work in, which is then not given back before the last launch."""
        self.workspace = workspace
        rows, width, wanted = self.logits.rows, self.wanted.width or 0, self.wanted
        pass_twice = wanted.in_order and width > TILE
        drawing = wanted.seeds is not None
        by_list = not self.top_p
        own = self.top_p.sizes() if self.top_p else []
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
            *areas,
        ) = workspace.reserve(
            [
                rows * ROW_BYTES,
                rows * BINS * 4 if by_list and not self.short else 0,
                rows * self.capacity * 8 if by_list else 0,
                rows * self.slices * 16 if by_list else 0,
                rows * KEPT * 8 if by_list and wanted.masked and not self.filled else 0,
                rows * FINALISTS * 16 if by_list and drawing and not self.short else 0,
                rows * self.chunks * 8 if width else 0,
                rows * width * 8,
                rows * width * 8 if pass_twice else 0,
                *own,
            ]
        )
        if self.top_p:
            self.top_p.place(areas)

    def find_top_p(self, method: Held | Masses) -> None:
        """Each row's boundary, and the mask or the token, for p alone."""
        masked = self.wanted.masked
        result = "mask" if masked else "find" if self.wanted.seeds is None else "draw"
        method.keep(result, self.by_sort, self.rows, masked, self.outputs)

    def find(self) -> None:
        """Each row's boundary."""
        size, blocks = np.int64(self.logits.size), self.logits.rows
        listing = (np.uint64(self.lists), np.uint32(self.capacity))
        table = np.uint64(self.rows)
        masked, wanted = self.wanted.masked, self.wanted
        target = masked.source if masked else (np.uint64(0), np.int64(0))
        self._run(
            "sampling_prepare.cu",
            "prepare",
            blocks,
            512,
            *self.logits.source,
            size,
            table,
            np.uint64(self.bins),
            *either(self.k, np.int64),
            *either(self.p, np.float64),
            *either(self.temperature, np.float64),
            np.int64(KEPT),
            np.int32(self.sample),
            np.int32(self.by_pivot),
        )
        parts = (np.int64(self.chunk), np.uint32(self.chunks))
        grid = blocks * self.chunks
        sums = (np.uint64(self.partial), np.int64(self.slices))
        if self.by_pivot:
            pass
        elif self.filled:
            self._run("sampling_scan.cu", "scan_fill", grid, 256, *self.logits.source, size, table,
                      *listing, *parts, *target)  # fmt: skip
        elif self.short:
            self._run("sampling_scan.cu", "scan", grid, 256, *self.logits.source, size, table,
                      *listing, *parts)  # fmt: skip
        else:
            self._run("sampling_scan.cu", "scan_bins", grid, 256, *self.logits.source, size, table,
                      np.uint64(self.bins), *listing, *parts)  # fmt: skip
            self._run("sampling_window.cu", "window", blocks, 512, table, np.uint64(self.bins),
                      *listing)  # fmt: skip
            chunks = min(-(-self.slices // 8), max(1, self.processors * 32 // blocks))
            name = "sweep_mask" if masked else "sweep" if wanted.seeds is None else "sweep_draw"
            self._run("sampling_sweep.cu", name, blocks * chunks, 256, *self.logits.source, size,
                      table, *listing, *sums, np.uint32(chunks), *target, np.uint64(self.finalists),
                      *self.outputs[-5:])  # fmt: skip
        self._run("sampling_resolve.cu", "resolve", blocks, self.threads, *self.logits.source, size,
                  table, *listing, *sums, np.uint64(self.kept), *target,
                  np.uint64(self.finalists), np.int32(self.by_sort),
                  np.uint32(self.list_bytes // 8), np.int32(self.filled), *self.outputs,
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
        if wanted.masked and not self.filled and not self.top_p:
            self._run("sampling_write.cu", "mask", grid, 512, *self.logits.source, size, table,
                      np.uint64(self.kept), *wanted.masked.source, *parts)  # fmt: skip

    def _candidates(self, parts: tuple[Any, ...], grid: int, width: int) -> None:
        size, blocks, table = np.int64(self.logits.size), self.logits.rows, np.uint64(self.rows)
        places, numbers, wide = np.uint64(self.places), np.uint64(self.numbers), np.int64(width)
        self._run("sampling_resolve.cu", "shorten", blocks, self.threads, *self.logits.source, size,
                  table, wide)  # fmt: skip
        self._run("sampling_write.cu", "count_kept", grid, 512, *self.logits.source, size, table,
                  numbers, *parts)  # fmt: skip
        self._run("sampling_write.cu", "gather", grid, 512, *self.logits.source, size, table,
                  numbers, *parts, places, wide)  # fmt: skip
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
        self._run("sampling_sort.cu", "unpack", blocks * chunks, 512, *self.logits.source, table,
                  places, address(self.selected.indices), address(self.selected.values), wide,
                  np.uint32(chunks))  # fmt: skip

    def _run(
        self, file: str, name: str, blocks: int, threads: int, *arguments: Any, shared: int = 0
    ) -> None:
        defines: Defines = ()
        if file == "sampling_resolve.cu":
            defines = tuple({**dict(self.variant), "THREADS": self.threads}.items())
        function = kernel(file, name, self.logits.element, self.device.id, defines)
        function((blocks,), (threads,), arguments, shared_mem=shared)


def _always_short(k: Any, p: Any, temperature: Any, size: int) -> bool:
    """Whether every row is known to keep a short list: k up to 2,048, or a single entry."""
    if not on_device(k) and 0 < k <= KEPT and k < size:
        return True
    if not on_device(p) and p <= 0:
        return True
    return not on_device(temperature) and temperature == 0
