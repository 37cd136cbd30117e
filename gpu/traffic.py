"""What a search reads, and how fast the device reads at random places.

A variant of the kernel marks the 32-byte sector of each load through the read-only path in a
bitmap: loads of the trie, and of log-probabilities. What the search writes itself and reads again
(lists, pool, history) is not counted, nor are a step's proposals. A sector counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from flashtrie.gpu.compiler import load
from flashtrie.gpu.device import DeviceTrie
from flashtrie.gpu.plan import COUNTING
from flashtrie.gpu.timing import prepare

_SECTOR_BYTES = 32
_MOST_PARTS = 16  # batches that are counted
_BLOCKS, _THREADS, _ROUNDS, _LOADS = 1056, 256, 64, 16  # some 280 million loads
_TRIES = 3


class Traffic:
    """Counts of searches in a trie on the device; see flashtrie.cpu.bench.Traffic."""

    def __init__(self, trie: DeviceTrie) -> None:
        """Measures the device: sectors at random places of this trie, read a second."""
        self._trie = trie
        self._bitmap = cupy.zeros((1 << COUNTING["TOUCHED_BITS"]) // 32, np.uint32)
        self.sectors_per_second = _random_rate(trie.payload())

    def bytes_touched(self, parts: Sequence[Any], beam_width: int) -> float:
        """Bytes that a search of a batch reads, each counted once: the mean of some batches."""
        return float(np.mean([self._of_batch(part, beam_width) for part in parts[:_MOST_PARTS]]))

    def _of_batch(self, part: Any, beam_width: int) -> int:
        searcher = self._trie.searcher
        before = searcher.changes
        searcher.changes = before | COUNTING
        try:
            search = prepare(self._trie, part, beam_width)
        finally:
            searcher.changes = before
        self._bitmap.fill(0)
        pointer = cupy.ndarray(1, np.uint64, search.kernel.module.get_global("touched"))
        pointer.fill(np.uint64(self._bitmap.data.ptr))
        search.launch()
        return int(np.bitwise_count(self._bitmap.get()).sum()) * _SECTOR_BYTES


def _random_rate(payload: Any) -> float:
    """Sectors a second that independent loads at random places of an array bring: the best."""
    kernel = load("random.cu", "load_at_random")
    total = cupy.zeros(1, np.uint32)
    given = (payload, np.uint64(len(payload) // _SECTOR_BYTES), np.uint64(_ROUNDS), total)
    milliseconds = []
    for _ in range(1 + _TRIES):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        kernel((_BLOCKS,), (_THREADS,), given)
        end.record()
        end.synchronize()
        milliseconds.append(cupy.cuda.get_elapsed_time(begin, end))
    loads = _BLOCKS * _THREADS * _ROUNDS * _LOADS
    return float(loads / (min(milliseconds[1:]) * 1e-3))
