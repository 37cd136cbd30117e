"""The paper's search on the CPU, beside ours: K x B binary searches a step.

    python -m benchmarks.paper_method ARTIFACT [--bw 1000] [--queries 64]

FlashTrie's published method searches every proposal among the children of every beam. Here it
stands over our artifact, with our selection and no early stop, so that the two differ in that
alone; results must be equal bit for bit before anything is timed. On many cores a single query's
beams are shared out at each step; of a batch, queries are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import flashtrie
from benchmarks.record import record
from flashtrie.cpu import view as v
from flashtrie.cpu.beam_search import (
    BEAMS,
    CANDIDATES,
    KEYWORDS,
    NEXT_BEAMS,
    ORIGINS,
    POOL,
    PROPOSALS,
    SCRATCH,
    make_memory,
    write_results,
)
from flashtrie.cpu.beams import ENDS, IN_TAIL, advance, beams_at
from flashtrie.cpu.full_queries import Drawer, FullQueries, draw_full
from flashtrie.cpu.instructions import i64, pointer_u32
from flashtrie.cpu.memory import table_of
from flashtrie.cpu.nodes import (
    find_high_child,
    first_high,
    high_part,
    inners_before,
    is_inner,
    is_terminal,
    root_child,
)
from flashtrie.cpu.order import best, candidates_at, cut, order_key, scratch_at
from flashtrie.cpu.pool import merge, pool_at
from flashtrie.cpu.proposals import clear, prepare, proposals_at
from flashtrie.cpu.queries import QueryMaker
from flashtrie.cpu.query_files import Queries
from flashtrie.cpu.succinct import find_packed
from flashtrie.cpu.tails import has_tail
from flashtrie.cpu.threads import Workers
from flashtrie.cpu.trie import Trie
from flashtrie.cpu.view import level, scalar
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.jit import jit

_SEED = 0
_INFINITY = np.float32(np.inf)
_BATCHES = (1, 8, 64)
_TIMED_ON_ONE_CORE = 16


@jit
def begin_step(view: Any, ranks: Any, tokens: int, logprobs: int, k: int, memory: int) -> int:
    """The proposals of a step, of addresses [K], into `memory`; how many there are."""
    count: int = prepare(
        ranks, scalar(view, v.VOCAB_SIZE), tokens, logprobs, k, k,
        proposals_at(memory + PROPOSALS), candidates_at(memory + CANDIDATES),
        scratch_at(memory + SCRATCH),
    )  # fmt: skip
    return count


@jit
def probe(
    view: Any,
    row: int,
    first: int,
    last: int,
    count: int,
    end: Any,
    width: int,
    proposed: int,
    given: int,
    memory: int,
) -> tuple[int, int]:
    """Search all proposals among the children of the beams from `first` up to `last`.

    Addresses: `proposed` of proposals, `given` of beams, `memory` of one whose candidates and
    keywords are written; how many of each, of those before the B-th of the share.
    """
    proposals, beams = proposals_at(proposed), beams_at(given)
    candidates, keywords = candidates_at(memory + CANDIDATES), candidates_at(memory + KEYWORDS)
    scratch = scratch_at(memory + SCRATCH)
    left = ending = 0
    for b in range(first, last):
        if left + count > candidates.capacity:
            left, _ = cut(candidates, left, width, scratch)
        if ending + count > keywords.capacity:
            ending, _ = cut(keywords, ending, width, scratch)
        start, stop = beams.start[b], beams.stop[b]
        in_tail = stop < 0
        boundary = high = low = low_bits = 0
        if not in_tail and row > 0:
            boundary = first_high(view, row, start, stop)
            high = high_part(view, row, boundary, stop) if boundary < stop else 0
            low, low_bits = level(view, row, v.LABEL_LOW), level(view, row, v.LABEL_LOW_BITS)
        for index in range(count):
            label = np.int64(proposals.rank[index])
            if in_tail:
                child = IN_TAIL if beams.label[b] & (ENDS - 1) == label else -1
            elif row == 0:
                child = root_child(view, label)
            elif label >> low_bits == 0:
                child = find_packed(view.file, low, low_bits, start, boundary, label)
            else:
                child = find_high_child(view, row, boundary, stop, high, label)
            if child < 0:
                continue
            if child == IN_TAIL:
                ends = beams.label[b] >= ENDS
                goes_on = not ends
            elif is_inner(view, row, child):
                goes_on = True
                ends = is_terminal(view, row, inners_before(view, row, child))
            else:
                goes_on = has_tail(view, row, child - inners_before(view, row, child))
                ends = not goes_on
            score = beams.score[b] + proposals.logprob[index]
            final = score + end + np.float32(0.0)
            position = np.int64(proposals.position[index])
            if goes_on and abs(score) < _INFINITY:
                candidates.key[left] = order_key(score, b, position)
                candidates.node[left] = child
                left += 1
            if ends and abs(final) < _INFINITY:
                keywords.key[ending] = order_key(final, b, position)
                keywords.node[ending] = child
                ending += 1
    return left, ending


@jit
def end_step(
    view: Any,
    row: int,
    count: int,
    size: int,
    last: int,
    memories: Any,
    lefts: Any,
    endings: Any,
    given: int,
    wanted: int,
) -> tuple[int, int]:
    """Beams of the next step, and the pool, of what the shares found: how many are in each.

    Addresses: `memories` of each share's, int64, the first with proposals, origins and pool;
    `given` and `wanted` of the step's beams and the next one's.
    """
    memory = memories[0]
    beams, next_beams = beams_at(given), beams_at(wanted)
    candidates, pool = candidates_at(memory + CANDIDATES), pool_at(memory + POOL)
    scratch = scratch_at(memory + SCRATCH)
    origins: Any = pointer_u32(i64(memory + ORIGINS, 0))
    width = pool.capacity
    left = lefts[0]
    for share in range(len(memories)):
        keywords = candidates_at(memories[share] + KEYWORDS)
        size = merge(pool, size, keywords, endings[share], beams, row + 1, scratch)
        if share == 0:
            continue
        others = candidates_at(memories[share] + CANDIDATES)
        for i in range(lefts[share]):
            if left == candidates.capacity:
                left, _ = cut(candidates, left, width, scratch)
            candidates.key[left] = others.key[i]
            candidates.node[left] = others.node[i]
            left += 1
    clear(proposals_at(memory + PROPOSALS), count)
    n = best(candidates, left, width, scratch)
    if n > 0 and not last:
        advance(view, row, beams, candidates, n, next_beams, origins, row * width)
    return n, size


class PaperMethod:
    """The method over an open artifact, one query at a time, on one thread or more."""

    def __init__(self, trie: Trie, steps: int, k: int, beam_width: int, threads: int = 1) -> None:
        """Allocate its memory once."""
        header = trie.artifact.header
        self._trie = trie
        self._steps = min(steps, header.max_length)
        self._threads = threads
        self._workers = Workers()
        sizes = (header.alphabet_size, self._steps, k, beam_width)
        self._memories = [make_memory(*sizes) for _ in range(threads)]
        self._tables = [table_of(*memory) for memory in self._memories]
        self._places = np.array([table.ctypes.data for table in self._tables])
        self._k = k
        self._width = beam_width

    def search(
        self,
        tokens: npt.NDArray[np.uint32],
        logprobs: npt.NDArray[np.float32],
        end_logprobs: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        """Key ids, scores and flat tokens of one query's results: [T, K], [T, K], [T + 1]."""
        view, where, k = self._trie.view, self._tables[0].ctypes.data, self._k
        beams, next_beams = where + BEAMS, where + NEXT_BEAMS
        self._memories[0].beams.score[0] = self._memories[0].next_beams.score[0] = 0.0
        self._memories[0].beams.stop[0] = self._memories[0].next_beams.stop[0] = 0
        found = np.zeros((2, self._threads), np.int64)
        n, size = 1, 0
        for row in range(self._steps):
            at, logprobs_at = (a.ctypes.data + row * k * 4 for a in (tokens, logprobs))
            count = begin_step(view, self._trie.ranks, at, logprobs_at, k, where)
            self._probe(row, n, count, end_logprobs[row + 1], beams, found)
            last = row + 1 == self._steps
            n, size = end_step(
                view, row, count, size, last, self._places, found[0], found[1], beams, next_beams
            )
            if n == 0:
                break
            beams, next_beams = next_beams, beams
        pool = self._memories[0].pool
        key_ids, flat = np.empty(size, np.int64), np.empty(int(pool.step[:size].sum()), np.uint32)
        results = (array.ctypes.data for array in (tokens, key_ids, flat))
        write_results(view, where, size, k, *results)
        return key_ids, pool.score[:size].copy(), flat

    def _probe(
        self, row: int, n: int, count: int, end: np.float32, beams: int, found: npt.NDArray[Any]
    ) -> None:
        """Share the beams out, in order; what each share found is in `found` [2, threads]."""
        view, proposed = self._trie.view, self._tables[0].ctypes.data + PROPOSALS

        def share(i: int) -> None:
            first, last = n * i // self._threads, n * (i + 1) // self._threads
            memory = int(self._places[i])
            found[:, i] = probe(
                view, row, first, last, count, end, self._width, proposed, beams, memory
            )

        self._workers.run(share, self._threads, self._threads)


def main() -> None:
    """Check, time, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact")
    parser.add_argument("--bw", type=int, default=1000)
    parser.add_argument("--top-k", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--queries", type=int, default=64)
    arguments = parser.parse_args()
    steps, k = arguments.steps, arguments.top_k
    with flashtrie.open(arguments.artifact) as trie:
        drawer = Drawer(QueryMaker(trie, steps, k, _SEED))
        full = draw_full(drawer, trie, arguments.bw, steps, arguments.queries, len(trie))
        result = measure(trie, full.queries, arguments.bw)
        result["profile"] = profile(trie, full, arguments.bw)
    print(json.dumps(result, indent=1))
    print(record(f"paper_method_{result['kind'] or 'artifact'}", result))


def measure(trie: Trie, queries: Queries, beam_width: int) -> dict[str, Any]:
    """Milliseconds of processor time a query of both, on one core."""
    tokens, logprobs, end = queries.arrays().values()
    _, steps, k = tokens.shape
    paper = PaperMethod(trie, steps, k, beam_width)

    def theirs(i: int) -> Any:
        return paper.search(tokens[i], logprobs[i], end[i])

    def ours(i: int) -> Any:
        return _ours(trie, queries, i, beam_width)

    rows = range(len(tokens))
    _assert_equal(ours, theirs, rows)
    paper_ms, our_ms = (_milliseconds(search, rows, time.thread_time) for search in (theirs, ours))
    return {
        "kind": trie.artifact.header.tags.get("kind"),
        "keywords": len(trie),
        "seed": _SEED,
        "bw": beam_width,
        "top_k": k,
        "steps": steps,
        "queries": len(tokens),
        "paper_ms": round(paper_ms, 2),
        "our_ms": round(our_ms, 3),
        "speedup": round(paper_ms / our_ms, 1),
    }


def profile(trie: Trie, full: FullQueries, beam_width: int) -> list[dict[str, Any]]:
    """Our search by step: what one more step costs, and what it keeps and finds."""
    rows: list[dict[str, Any]] = []
    before = 0.0
    tokens, logprobs, end = full.queries.arrays().values()
    for step, (beams, found) in enumerate(
        zip(full.active_beams, full.candidates, strict=True), start=1
    ):
        cut = Queries(
            np.ascontiguousarray(tokens[:, :step]),
            np.ascontiguousarray(logprobs[:, :step]),
            np.ascontiguousarray(end[:, : step + 1]),
        )

        def search(i: int, cut: Queries = cut) -> Any:
            return _ours(trie, cut, i, beam_width)

        milliseconds = min(
            _milliseconds(search, range(len(tokens)), time.thread_time) for _ in range(3)
        )
        row = {"step": step, "ms": round(milliseconds - before, 3)}
        rows.append(row | {"active_beams": beams, "candidates": found})
        before = milliseconds
    return rows


def measure_paper(trie: Trie, queries: Queries, beam_width: int) -> list[dict[str, Any]]:
    """Milliseconds of a batch by the paper's method: one core, and all for some batch sizes.

    Of a single query on all cores, the best of some numbers of threads.
    """
    tokens, logprobs, end = queries.arrays().values()
    sizes = (tokens.shape[1], tokens.shape[2], beam_width)
    cores = usable_cores()
    few = range(min(_TIMED_ON_ONE_CORE, len(tokens)))
    rows: list[dict[str, Any]] = []

    def search_with(method: PaperMethod) -> Callable[[int], Any]:
        return lambda i: method.search(tokens[i], logprobs[i], end[i])

    for threads in sorted({1, max(cores // 2, 1), cores}):
        search = search_with(PaperMethod(trie, *sizes, threads))
        _assert_equal(lambda i: _ours(trie, queries, i, beam_width), search, few[:4])
        milliseconds = _milliseconds(search, few, time.perf_counter)
        rows.append({"cores": threads, "batch": 1, "mean_ms": round(milliseconds, 3)})
    methods = [search_with(PaperMethod(trie, *sizes)) for _ in range(cores)]
    workers = Workers()
    for batch in _BATCHES[1:]:
        batch = min(batch, len(tokens))
        starts = range(0, len(tokens) - batch + 1, batch)[:4]
        started = time.perf_counter()
        for start in starts:
            _search_batch(workers, methods, range(start, start + batch))
        milliseconds = (time.perf_counter() - started) / len(starts) * 1e3
        rows.append({"cores": cores, "batch": batch, "mean_ms": round(milliseconds, 3)})
    workers.close()
    return rows


def _search_batch(workers: Workers, methods: list[Callable[[int], Any]], batch: range) -> None:
    """Queries of a batch, each taken by the next thread that is free."""
    free = list(methods)

    def search(i: int) -> None:
        method = free.pop()
        method(batch[i])
        free.append(method)

    workers.run(search, len(batch), len(methods))


def _ours(trie: Trie, queries: Queries, i: int, beam_width: int) -> Any:
    """Our search of a query on one thread, as PaperMethod.search gives it."""
    query: dict[str, Any] = queries.part(i, i + 1).arrays()
    found = trie.search(**query, beam_width=beam_width, threads=1)
    return found.key_ids, found.scores, found.tokens


def _assert_equal(ours: Callable[[int], Any], theirs: Callable[[int], Any], rows: range) -> None:
    for i in rows:
        for one, other in zip(ours(i), theirs(i), strict=True):
            assert one.tobytes() == other.tobytes(), f"query {i} differs"


def _milliseconds(search: Callable[[int], Any], rows: range, clock: Callable[[], float]) -> float:
    started = clock()
    for i in rows:
        search(i)
    return (clock() - started) / len(rows) * 1e3


if __name__ == "__main__":
    main()
