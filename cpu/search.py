"""Beam search of batches: queries side by side in threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.beam_search import Memory, make_memory, search_query, write_results
from flashtrie.cpu.memory import memory_bytes, table_of
from flashtrie.cpu.ranks import RankTable
from flashtrie.cpu.threads import Workers
from flashtrie.cpu.view import Mapped
from flashtrie.formats.schema import Header
from flashtrie.formats.search import SearchInput, SearchResult, SearchStats

_Sizes = tuple[int, int, int]
_KEPT_MEMORY_BYTES = 1 << 30  # what may be kept from call to call


class _Kept(NamedTuple):
    """Memory for queries of these sizes."""

    sizes: _Sizes
    memory: Memory
    table: npt.NDArray[np.int64]
    bytes: int


class Searcher:
    """Searches one artifact, and keeps the memory of the last searches for the next."""

    def __init__(self, mapped: Mapped, ranks: RankTable, header: Header, workers: Workers) -> None:
        """Of an open artifact. Nothing is allocated yet."""
        self._mapped = mapped
        self._ranks = ranks
        self._header = header
        self._workers = workers
        self._lock = threading.Lock()
        self._free: list[_Kept] = []

    def search(
        self, given: SearchInput, threads: int, stats: SearchStats | None = None
    ) -> SearchResult:
        """The results of all queries, without values. One thread searches a query."""
        queries, steps, _ = given.tokens.shape
        parts: list[SearchResult] = [_NOTHING] * queries
        rows = min(steps, self._header.max_length) if stats else 0
        counts = np.zeros((queries, 2, rows), np.int64)

        def search_one(query: int) -> None:
            parts[query] = self._search_one(given, query, counts[query])

        self._workers.run(search_one, queries, threads)
        if stats:
            whole = np.zeros((2, queries, steps), np.int64)
            whole[:, :, :rows] = counts.transpose(1, 0, 2)
            stats.active_beams, stats.candidates = whole
        return SearchResult.join(parts)

    def _search_one(
        self, given: SearchInput, query: int, counts: npt.NDArray[np.int64]
    ) -> SearchResult:
        tokens, logprobs = given.tokens[query], given.logprobs[query]
        steps, k = tokens.shape
        rows = min(steps, self._header.max_length)
        end = given.end_logprobs[min(query, len(given.end_logprobs) - 1)]
        with self._memory((rows, k, given.beam_width)) as (memory, at):
            n = search_query(
                self._mapped.view,
                self._ranks.ranks,
                tokens.ctypes.data,
                logprobs.ctypes.data,
                rows,
                k,
                given.top_k,
                end.ctypes.data,
                given.penalties.ctypes.data,
                at,
                counts.ctypes.data if counts.size else 0,
            )
            lengths = memory.pool.step[:n].copy()
            token_offsets = np.zeros(n + 1, np.int64)
            np.cumsum(lengths, out=token_offsets[1:])
            key_ids = np.empty(n, np.int64)
            flat = np.empty(token_offsets[n], np.uint32)
            write_results(
                self._mapped.view,
                at,
                n,
                k,
                tokens.ctypes.data,
                key_ids.ctypes.data,
                flat.ctypes.data,
            )
            offsets = np.array([0, n], np.int64)
            scores = memory.pool.score[:n].copy()
        return SearchResult(offsets, key_ids, scores, lengths, token_offsets, flat, None)

    @contextmanager
    def _memory(self, sizes: _Sizes) -> Iterator[tuple[Memory, int]]:
        """Memory that no other thread has, and where its table is."""
        with self._lock:
            if self._free and self._free[-1].sizes != sizes:
                self._free.clear()
            kept = self._free.pop() if self._free else None
        if kept is None:
            memory = make_memory(self._header.alphabet_size, *sizes)
            kept = _Kept(sizes, memory, table_of(*memory), memory_bytes(memory))
        yield kept.memory, kept.table.ctypes.data
        # After an error the memory, in which proposals may be marked, is let go.
        with self._lock:
            if kept.bytes * (len(self._free) + 1) <= _KEPT_MEMORY_BYTES:
                self._free.append(kept)


_NOTHING = SearchResult(
    np.zeros(1, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
    np.zeros(0, np.int32),
    np.zeros(1, np.int64),
    np.zeros(0, np.uint32),
    None,
)
