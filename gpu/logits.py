"""From logits to proposals on the device: log-softmax in float64, and the best K of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from flashtrie.formats.errors import InputError
from flashtrie.formats.search import check_logits
from flashtrie.gpu.inputs import as_array, copied_bytes
from flashtrie.gpu.sampling import ROW_BYTES, TILE
from flashtrie.gpu.sampling_arguments import Matrix, Workspace, address
from flashtrie.gpu.sampling_kernels import kernel
from flashtrie.gpu.sampling_mass import Masses

# Of the rows that are taken at a time: of their lists and bins, and as much again of their copies.
MOST_ROWS_BYTES = 1 << 28
_THREADS = 512
_ELEMENT = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}


@dataclass(frozen=True)
class Proposals:
    """Tokens uint32 and log-probabilities float32 [Q, T, K] on the device, best first.

    ABSENT and -inf fill rows with fewer. `check` raises what is wrong with the logits, which lie
    where they were given; bfloat16 as its bits.
    """

    tokens: Any
    logprobs: Any
    _logits: Any
    _wrong: Any  # uint8 [Q, T]

    def check(self, first_query: int = 0) -> None:
        """Raise InputError for NaN and +inf in the logits: the first. Waits for the stream."""
        rows = np.flatnonzero(self._wrong.get())
        if len(rows) == 0:
            return
        query, step = divmod(int(rows[0]), self._logits.shape[1])
        row = cupy.asnumpy(self._logits[query, step])
        if row.dtype == np.uint16:
            row = (row.astype(np.uint32) << np.uint32(16)).view(np.float32)
        column = int(np.argmax(~(row < np.inf)))
        raise InputError(
            f"logit {float(row[column])}",
            f"query {first_query + query}, step {step + 1}, column {column}",
            hint="Logits are finite or -inf",
        )


def logit_array(logits: Any) -> Any:
    """Logits [Q, T, W] as a CuPy or NumPy array, bfloat16 as its bits: no copy is made.

    Raises UsageError.
    """
    if str(getattr(logits, "dtype", "")) == "torch.bfloat16":
        import torch

        logits = as_array(logits.detach().view(torch.int16)).view(np.uint16)
        check_logits(logits.view(np.float16))  # its shape alone
        return logits
    logits = as_array(logits)
    check_logits(logits)
    return logits.view(np.uint16) if logits.dtype.name == "bfloat16" else logits


def logit_proposals(
    logits: Any,
    vocab_size: int,
    top_k: int,
    workspace: Workspace | None = None,
    room: int = MOST_ROWS_BYTES,
) -> Proposals:
    """The best min(K, W, V) of logits [Q, T, W], on the current stream, without waiting for it.

    As flashtrie.cpu.logits: the log-softmax is over all columns; those at or above the vocabulary
    and those of -inf are then left out, and ties go to the lower token. Three reads of the logits,
    and half a byte of memory beside each of their elements. Rows are taken some at a time, with
    about `room` bytes of lists, and of copies where logits are not on the device, or of float64.
    `logits` may also be of logit_array. Raises UsageError.
    """
    if getattr(logits, "dtype", None) != np.uint16:
        logits = logit_array(logits)
    queries, steps, columns = logits.shape
    width = min(top_k, columns, vocab_size)
    tokens = cupy.empty((queries, steps, width), np.uint32)
    logprobs = cupy.empty((queries, steps, width), np.float32)
    wrong = cupy.empty((queries, steps), np.uint8)
    found = Proposals(tokens, logprobs, logits, wrong)
    if tokens.size == 0:
        wrong.fill(0)
        return found
    each = max(_Best.bytes(columns, width), _copied_bytes(logits) // (queries * steps))
    workspace = workspace or Workspace()
    for rows in _parts(queries, steps, max(1, room // each)):
        part = _as_elements(cupy.asarray(logits[rows]).reshape(-1, columns))
        best = _Best(part, vocab_size, width, workspace)
        outputs = tokens[rows].reshape(-1, width), logprobs[rows].reshape(-1, width)
        best.launch(wrong[rows].reshape(-1), *outputs)
    return found


def _parts(queries: int, steps: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Queries and steps of at most so many rows at a time, in their order."""
    if steps <= most:
        each = most // steps
        for query in range(0, queries, each):
            yield slice(query, query + each), slice(0, steps)
        return
    for query in range(queries):
        for step in range(0, steps, most):
            yield slice(query, query + 1), slice(step, step + most)


def _copied_bytes(logits: Any) -> int:
    """Memory on the device for copies of logits, were they copied all at once."""
    bytes_moved = copied_bytes(logits, logits.dtype)
    return bytes_moved + (0 if logits.dtype in _ELEMENT else logits.size * (8 + 4))


def _as_elements(logits: Any) -> Any:
    """What has the same softmax, as kernels take it: float64 relative to its maximum."""
    if logits.dtype in _ELEMENT:
        return logits
    top = logits.max(axis=1, keepdims=True)
    return (logits - cupy.where(cupy.isinf(top) & (top < 0), 0.0, top)).astype(np.float32)


class _Best:
    """The launches for some rows."""

    def __init__(self, logits: Any, vocab_size: int, width: int, workspace: Workspace) -> None:
        rows, columns = logits.shape
        self._logits = logits = cupy.ascontiguousarray(logits)
        self._width = width
        element = _ELEMENT[logits.dtype]

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
        if self._whole is not self._ranked:
            self._whole.find_best(0, self._whole)
        self._ranked.find_best(self._width, self._whole)
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
