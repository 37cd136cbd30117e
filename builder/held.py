"""Batches that wait in memory between the two passes of a build that does not spill.

What a page costs when it is touched for the first time is much of what reading costs, so batches
are copied out of the decoder's buffers, which it then uses again, and lie close together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flashtrie.builder.batches import Batch

_SLAB_TOKENS = 4 << 20  # 16 MiB: NumPy asks for huge pages


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """tokens uint32 [n], lengths uint16 [rows], values int64 [rows] or None."""

    tokens: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.uint16]
    values: npt.NDArray[np.int64] | None

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each keyword begins, and the end: int64 [rows + 1]."""
        offsets = np.zeros(len(self.lengths) + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    def __len__(self) -> int:
        """Rows."""
        return len(self.lengths)


class Holder:
    """Copies of batches, in slabs, one at a time for each thread; none once they were dropped."""

    def __init__(self) -> None:
        """Nothing is held."""
        self._local = threading.local()
        self._lock = threading.Lock()
        self._batches: list[HeldBatch] | None = []

    @property
    def dropped(self) -> bool:
        """Whether nothing is held, nor will be."""
        return self._batches is None

    def hold(self, batch: Batch) -> None:
        """Keep 4 bytes a token and 2 a row, and 8 with values. Called from any thread."""
        if self._batches is None:
            return
        copy = self._copy(batch)
        with self._lock:
            if self._batches is not None:
                self._batches.append(copy)

    def drop(self) -> None:
        """Let go of everything, and of what is still to come."""
        with self._lock:
            self._batches = None

    def take(self) -> Iterator[HeldBatch]:
        """Each batch, which is let go of."""
        batches = self._batches or []
        batches.reverse()
        while batches:
            yield batches.pop()

    def _copy(self, batch: Batch) -> HeldBatch:
        n = len(batch.tokens)
        free: npt.NDArray[np.uint32] = getattr(self._local, "free", batch.tokens[:0])
        if len(free) < n:
            free = np.empty(max(_SLAB_TOKENS, n), np.uint32)
        tokens, self._local.free = free[:n], free[n:]
        tokens[:] = batch.tokens
        lengths = np.diff(batch.offsets).astype(np.uint16)
        return HeldBatch(tokens, lengths, None if batch.values is None else batch.values.copy())
