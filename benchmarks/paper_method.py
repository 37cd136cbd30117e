"""The paper's search on one CPU core, beside ours: K x B binary searches a step.

    python -m benchmarks.paper_method ARTIFACT [--bw 1000] [--queries 64]

FlashTrie's published method searches every proposal among the children of every beam. Here it
stands over our artifact, with our selection and no early stop, so that the two differ in that
alone; results must be equal bit for bit before anything is timed.
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
from flashtrie.cpu.bench import draw_full
from flashtrie.cpu.instructions import i64, pointer_f32, pointer_u32
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
from flashtrie.cpu.succinct import find_packed
from flashtrie.cpu.tails import has_tail
from flashtrie.cpu.trie import Trie
from flashtrie.cpu.view import level, scalar
from flashtrie.formats.jit import jit

_SEED = 0
_INFINITY = np.float32(np.inf)


@jit
def search_by_probes(
    view: Any,
    ranks: Any,
    tokens: int,
    logprobs: int,
    steps: int,
    k: int,
    end_logprobs: int,
    memory: int,
) -> int:
    """Search one query; how many results are in `memory.pool`. As beam_search.search_query."""
    proposals = proposals_at(memory + PROPOSALS)
    beams, next_beams = beams_at(memory + BEAMS), beams_at(memory + NEXT_BEAMS)
    candidates, keywords = candidates_at(memory + CANDIDATES), candidates_at(memory + KEYWORDS)
    pool, scratch = pool_at(memory + POOL), scratch_at(memory + SCRATCH)
    origins: Any = pointer_u32(i64(memory + ORIGINS, 0))
    end: Any = pointer_f32(end_logprobs)
    width = pool.capacity
    beams.score[0] = 0.0
    beams.stop[0] = 0
    n = 1
    size = 0
    for row in range(steps):
        count = prepare(
            ranks, scalar(view, v.VOCAB_SIZE), tokens + row * k * 4, logprobs + row * k * 4, k, k,
            proposals, candidates, scratch,
        )  # fmt: skip
        left = ending = 0
        for b in range(n):
            if left + count > candidates.capacity:
                left, _ = cut(candidates, left, width, scratch)
            if ending + count > keywords.capacity:
                size = merge(pool, size, keywords, ending, beams, row + 1, scratch)
                ending = 0
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
                final = score + end[row + 1] + np.float32(0.0)
                position = np.int64(proposals.position[index])
                if goes_on and abs(score) < _INFINITY:
                    candidates.key[left] = order_key(score, b, position)
                    candidates.node[left] = child
                    left += 1
                if ends and abs(final) < _INFINITY:
                    keywords.key[ending] = order_key(final, b, position)
                    keywords.node[ending] = child
                    ending += 1
        size = merge(pool, size, keywords, ending, beams, row + 1, scratch)
        clear(proposals, count)
        n = best(candidates, left, width, scratch)
        if n == 0 or row + 1 == steps:
            break
        advance(view, row, beams, candidates, n, next_beams, origins, row * width)
        beams, next_beams = next_beams, beams
    return size


class PaperMethod:
    """The method over an open artifact, one query at a time."""

    def __init__(self, trie: Trie, steps: int, k: int, beam_width: int) -> None:
        """Allocate its memory once."""
        header = trie.artifact.header
        self._trie = trie
        self._steps = min(steps, header.max_length)
        self._memory = make_memory(header.alphabet_size, self._steps, k, beam_width)
        self._table = table_of(*self._memory)
        self._k = k

    def search(
        self,
        tokens: npt.NDArray[np.uint32],
        logprobs: npt.NDArray[np.float32],
        end_logprobs: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        """Key ids, scores and flat tokens of one query's results: [T, K], [T, K], [T + 1]."""
        view, where, k = self._trie.view, self._table.ctypes.data, self._k
        n = search_by_probes(
            view,
            self._trie.ranks,
            tokens.ctypes.data,
            logprobs.ctypes.data,
            self._steps,
            k,
            end_logprobs.ctypes.data,
            where,
        )
        pool = self._memory.pool
        key_ids, flat = np.empty(n, np.int64), np.empty(int(pool.step[:n].sum()), np.uint32)
        data = (array.ctypes.data for array in (tokens, key_ids, flat))
        write_results(view, where, n, k, *data)
        return key_ids, pool.score[:n].copy(), flat


def main() -> None:
    """Check, time, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact")
    parser.add_argument("--bw", type=int, default=1000)
    parser.add_argument("--top-k", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--queries", type=int, default=64)
    arguments = parser.parse_args()
    with flashtrie.open(arguments.artifact) as trie:
        result = measure(trie, arguments.bw, arguments.top_k, arguments.steps, arguments.queries)
    print(json.dumps(result, indent=1))
    print(record(f"paper_method_{result['kind'] or 'artifact'}", result))


def measure(trie: Trie, beam_width: int, k: int, steps: int, wanted: int) -> dict[str, Any]:
    """Milliseconds of processor time a query of both, over full queries."""
    maker = QueryMaker(trie, steps, k, _SEED)
    full = draw_full(maker, trie, beam_width, steps, wanted, len(trie))
    tokens, logprobs, end = full.queries.arrays().values()
    paper = PaperMethod(trie, steps, k, beam_width)

    def theirs(i: int) -> Any:
        return paper.search(tokens[i], logprobs[i], end[i])

    def ours(i: int) -> Any:
        query = slice(i, i + 1)
        found = trie.search(
            tokens[query],
            logprobs[query],
            end_logprobs=end[query],
            beam_width=beam_width,
            threads=1,
        )
        return found.key_ids, found.scores, found.tokens

    for i in range(len(tokens)):
        for one, other in zip(ours(i), theirs(i), strict=True):
            assert one.tobytes() == other.tobytes(), f"query {i} differs"
    rows = range(len(tokens))
    paper_ms, our_ms = _milliseconds(theirs, rows), _milliseconds(ours, rows)
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


def _milliseconds(search: Callable[[int], Any], rows: range) -> float:
    started = time.thread_time()
    for i in rows:
        search(i)
    return (time.thread_time() - started) / len(rows) * 1e3


if __name__ == "__main__":
    main()
