"""From logits to proposals on the device: log-softmax in float64, and the best K of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from flashtrie.formats.errors import InputError
from flashtrie.formats.search import check_logits
from flashtrie.gpu.inputs import on_device
from flashtrie.gpu.sampling import ROW_BYTES, TILE
from flashtrie.gpu.sampling_arguments import Matrix, Workspace, address
from flashtrie.gpu.sampling_kernels import kernel
from flashtrie.gpu.sampling_mass import Masses

_MOST_ROWS_BYTES = 1 << 28  # of lists and bins of the rows that are taken at a time
_THREADS = 512


@dataclass(frozen=True)
class Proposals:
    """Tokens uint32 and log-probabilities float32 [Q, T, K] on the device, best first.

    ABSENT and -inf fill rows with fewer. `check` raises what is wrong with the logits.
    """

    tokens: Any
    logprobs: Any
    _logits: Any
    _wrong: Any  # uint8 [Q T]

    def check(self) -> None:
        """Raise InputError for NaN and +inf in the logits: the first. Waits for the stream."""
        rows = np.flatnonzero(self._wrong.get())
        if len(rows) == 0:
            return
        query, step = divmod(int(rows[0]), self._logits.shape[1])
        row = self._logits[query, step].astype(np.float64)
        column = int(cupy.argmax(~(row < np.inf)))
        raise InputError(
            f"logit {float(row[column])}",
            f"query {query}, step {step + 1}, column {column}",
            hint="Logits are finite or -inf",
        )


def logit_proposals(
    logits: Any, vocab_size: int, top_k: int, workspace: Workspace | None = None
) -> Proposals:
    """The best min(K, W, V) of logits [Q, T, W], on the current stream, without waiting for it.

    As flashtrie.cpu.logits: the log-softmax is over all columns; those at or above the vocabulary
    and those of -inf are then left out, and ties go to the lower token. Three reads of the logits,
    and half a byte of memory beside each of their elements. Raises UsageError.
    """
    if getattr(getattr(logits, "dtype", None), "name", "") == "bfloat16" and not hasattr(
        logits, "__dlpack_device__"
    ):
        logits = np.asarray(logits).astype(np.float32)
    logits = on_device(logits)
    check_logits(logits)
    queries, steps, columns = logits.shape
    width = min(top_k, columns, vocab_size)
    tokens = cupy.empty((queries, steps, width), np.uint32)
    logprobs = cupy.empty((queries, steps, width), np.float32)
    wrong = cupy.empty(queries * steps, np.uint8)
    found = Proposals(tokens, logprobs, logits, wrong)
    if tokens.size == 0:
        wrong.fill(0)
        return found
    flat = _as_float32(logits).reshape(queries * steps, columns)
    shape = (queries * steps, width)
    each = _Best.bytes(columns, width)
    part = max(1, _MOST_ROWS_BYTES // each)
    workspace = workspace or Workspace()
    for start in range(0, len(flat), part):
        rows = slice(start, start + part)
        best = _Best(flat[rows], vocab_size, width, workspace)
        best.launch(wrong[rows], tokens.reshape(shape)[rows], logprobs.reshape(shape)[rows])
    return found


def _as_float32(logits: Any) -> Any:
    """What has the same softmax, in float32 or float16: float64 relative to its maximum."""
    if logits.dtype in (np.float32, np.float16):
        return logits
    top = logits.max(axis=2, keepdims=True)
    return (logits - cupy.where(cupy.isinf(top) & (top < 0), 0.0, top)).astype(np.float32)


class _Best:
    """The launches for some rows."""

    def __init__(self, logits: Any, vocab_size: int, width: int, workspace: Workspace) -> None:
        rows, columns = logits.shape
        self._logits = logits = cupy.ascontiguousarray(logits)
        self._width = width
        element = 0 if logits.dtype == np.float32 else 1

        def first(size: int) -> Matrix:
            return Matrix(logits.data.ptr, columns, rows, size, element, logits)

        room = width + (width >> 1)
        self._ranked = Masses(first(min(columns, vocab_size)), 1.0, 1.0, room)
        self._whole = self._ranked
        if columns > vocab_size:
            self._whole = Masses(first(columns), 1.0, 1.0)
        wide = width > TILE
        own, whole = self._ranked.sizes(), []
        if self._whole is not self._ranked:
            whole = self._whole.sizes()
        self._places, self._merged, self._rows, *areas = workspace.reserve(
            [
                rows * width * 8 if wide else 0,
                rows * width * 8 if wide else 0,
                rows * ROW_BYTES if wide else 0,
                *own,
                *whole,
            ]
        )
        self._ranked.place(areas[: len(own)])
        if whole:
            self._whole.place(areas[len(own) :])

    @staticmethod
    def bytes(columns: int, width: int) -> int:
        """Memory for one row, about."""
        return columns + 65536 + 40 * width

    def launch(self, wrong: Any, tokens: Any, logprobs: Any) -> None:
        self._ranked.find_best(self._width)
        if self._whole is not self._ranked:
            self._whole.find_best(0)
        self._ranked.best(
            self._whole, self._width, wrong, self._places, self._rows, tokens, logprobs
        )
        if not self._places:
            return
        rows, width = tokens.shape
        device = cupy.cuda.Device().id
        tiles = -(-width // TILE)
        places, other, run = np.uint64(self._places), np.uint64(self._merged), TILE
        table, wide = np.uint64(self._rows), np.int64(width)
        sort = kernel("sampling_sort.cu", "sort_tiles", 0, device)
        sort((rows * tiles,), (1024,), (table, places, wide, np.uint32(tiles)))
        merge = kernel("sampling_sort.cu", "merge", 0, device)
        chunks = max(1, min(-(-width // 512), 2048 // rows))
        while run < width:
            merge((rows * chunks,), (512,),
                  (table, places, other, wide, np.int64(run), np.uint32(chunks)))  # fmt: skip
            places, other, run = other, places, 2 * run
        unpack = kernel("sampling_best.cu", "unpack_best", 0, device)
        count = rows * width
        unpack((-(-count // _THREADS),), (_THREADS,),
               (places, np.int64(count), address(tokens), address(logprobs)))  # fmt: skip
