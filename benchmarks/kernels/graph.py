"""What the search would cost as a CUDA graph of plain kernels, one for each phase: a lower bound.

    python -m benchmarks.kernels.graph OUT.json

gpu/kernels/search.cu is one cooperative kernel; its phases are parted by barriers. In the graph a
barrier becomes the boundary between two kernels, and what blocks hold in shared memory goes through
device memory. graph.cu has both forms of a phase that does next to nothing, on the blocks, threads
and shared memory of a search of batch 1. Sums and state must be equal before anything is timed;
exit code 1 where they are not.

Barriers of a query: one behind the ranks of its proposals (begin_query), and in each step one
behind the counts (find_candidates) and one at its end (make_step): 1 + 2 T, 17 for T = 8. Second
waves, narrowing and sorting, which have more, do not come at this size or are rare, and are left
out.

What must survive, in bytes for B = K = 1,000. All blocks have the same of it but for staged hits:

    behind the counts, to place hits                                least        likely
      scalars: best, pool_best, bound, beams, pooled, staged, ...      48            48
      level and below, of 368 bytes each                              736           736
      pool_bins                                                     8,192         8,192
      stage, own: the B hits that are taken / 4,000 candidates,
        16 bytes a hit, over 132 blocks                               128           480
    at the end of a step, to scan
      scalars: before_best, cut_bin, beams, pooled, bound, ...         48            48
      above and level                                                 736           736
      bins[BEAMS], sums before bins: up to 100 bins / all             400         8,192
      the next step's proposals: ranks and log-probabilities
        alone / filter, slot_ranks, slot_positions, logprobs        8,000        24,480

A bin about the cut holds a percent of B, so there are at least 100. Kernels of the graph are all
alike here. The least state is the smaller of the two sums of what is common, and the mean of what
is own; the likely one has means of both. Members that are made anew in a phase (first_unit,
first_pair, rank, digits, queue) do not count, nor do those that a scan repeated for want of stage
would need.

It is a lower bound of what the graph adds: there is nothing in it for making the set of proposals
from their ranks, which the search does while it waits at a barrier, nor for registers that are
lost. Kernels are plain ones, which begin when the one before has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from flashtrie.cpu.machine import commit
from flashtrie.gpu import plan
from flashtrie.gpu.compiler import load_module
from flashtrie.gpu.devices import chip, driver
from flashtrie.gpu.sampling_bench import time_graph

SOURCE = Path(__file__).with_name("graph.cu").resolve()
STEPS, PROPOSALS = 8, 1000
BOUNDARIES = 1 + 2 * STEPS
SEARCH_SHARED_BYTES = plan.block_bytes(plan.defines(PROPOSALS))
SMALL_SHARED_BYTES = 32 << 10
_TIMES = 8  # the time of a phase is the slope from a chain to one so many times as long
_COUNTS, _ADDS, _SETS = 4 * plan.THREADS, 256, 3  # as in graph.cu

Call = Callable[[], Any]


class State(NamedTuple):
    """Bytes that go from phase to phase: what all blocks have in common, and each one's own."""

    name: str
    same: int
    own: int


STATES = (State("none", 0, 0), State("least", 8976, 64), State("likely", 21216, 240))


class Chain:
    """Phases one behind the other, in both forms, with the memory that they work in."""

    def __init__(self, state: State, shared_bytes: int) -> None:
        """For all multiprocessors of the current device, a block each."""
        self.blocks = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
        self._same, self._own = state.same // 8, state.own // 8
        self._shared_bytes = shared_bytes
        self._counts = cupy.zeros((_SETS, _COUNTS), np.uint32)
        self._totals = cupy.zeros(self.blocks, np.uint32)
        self._state = cupy.zeros(2 * self._same + self.blocks * self._own, np.uint64)
        self._counter = cupy.zeros(2, np.uint32)
        self._persistent, self._phase = (
            load_module(str(SOURCE), {"THREADS": plan.THREADS}, cooperative).get_function(name)
            for name, cooperative in (("persistent", True), ("phase", False))
        )
        for function in (self._persistent, self._phase):
            function.max_dynamic_shared_size_bytes = SEARCH_SHARED_BYTES  # the most

    def persistent(self, phases: int) -> list[Call]:
        """The one launch of the persistent form."""
        return [partial(self._launch, self._persistent, phases, self._counter)]

    def graph(self, phases: int) -> list[Call]:
        """The launches of the other form."""
        return [partial(self._launch, self._phase, i) for i in range(phases)]

    def equal(self, phases: int) -> bool:
        """Whether both forms come to the sums that they must, and to the same state."""
        total = _last_total(self.blocks, phases)
        found = [
            self._run(calls, phases) for calls in (self.persistent(phases), self.graph(phases))
        ]
        right = all((totals == total).all() for totals, _ in found)
        return right and np.array_equal(found[0][1], found[1][1])

    def _run(self, calls: list[Call], phases: int) -> tuple[Any, Any]:
        """Totals of the last phase, and the state after it, from a defined beginning."""
        self._counts[:] = 0
        self._counts[0] = 1
        self._totals[:] = 0
        self._state[:] = cupy.arange(len(self._state), dtype=np.uint64)
        for call in calls:
            call()
        state, start = self._state.get(), (phases & 1) * self._same
        common = state[start : start + self._same]
        return self._totals.get(), np.concatenate([common, state[2 * self._same :]])

    def _launch(self, function: Any, number: int, *more: Any) -> None:
        sizes = map(np.uint32, (self._same, self._own, number))
        function(
            (self.blocks,),
            (plan.THREADS,),
            (self._counts, self._totals, self._state, *sizes, *more),
            shared_mem=self._shared_bytes,
        )


def _last_total(blocks: int, phases: int) -> int:
    """What every block must come to in the last phase: graph.cu's sums, modulo 2^32."""
    threads = np.arange(blocks)[:, None] * plan.THREADS + np.arange(_ADDS)
    total = _COUNTS
    for _ in range(phases - 1):
        mixed = (threads.astype(np.uint32) ^ np.uint32(total)) * np.uint32(0x9E3779B1)
        total = int((mixed ^ mixed >> 15).sum(dtype=np.uint64)) & 0xFFFFFFFF
    return total


def microseconds_of_phase(form: Callable[[int], list[Call]]) -> float:
    """Of a phase and what parts it from the next one, without what a chain begins with."""
    short, long = BOUNDARIES + 1, _TIMES * (BOUNDARIES + 1)
    seconds = []
    for phases in (short, long):
        calls = form(phases)
        seconds.append(time_graph(calls) * len(calls))
    return (seconds[1] - seconds[0]) / (long - short) * 1e6


def measure() -> dict[str, Any] | None:
    """The figures; None where the forms are not equal."""
    chains = {
        (state, shared): Chain(state, shared)
        for shared in (SEARCH_SHARED_BYTES, SMALL_SHARED_BYTES)
        for state in STATES
    }
    if not all(chain.equal(BOUNDARIES + 1) for chain in chains.values()):
        return None
    first = chains[STATES[0], SEARCH_SHARED_BYTES]
    persistent = microseconds_of_phase(first.persistent)
    rows = []
    for (state, shared), chain in chains.items():
        of_phase = microseconds_of_phase(chain.graph)
        rows.append(
            {
                "state": state.name,
                "state_bytes": state.same + state.own,
                "shared_bytes": shared,
                "us_per_phase": round(of_phase, 3),
                "difference_us_per_query": round(BOUNDARIES * (of_phase - persistent), 1),
            }
        )
    return {
        "chip": chip(),
        "driver": driver(),
        "commit": commit(),
        "steps": STEPS,
        "boundaries": BOUNDARIES,
        "blocks": first.blocks,
        "threads": plan.THREADS,
        "persistent": {
            "shared_bytes": SEARCH_SHARED_BYTES,
            "us_per_phase": round(persistent, 3),
        },
        "graph": rows,
    }


def main() -> int:
    """Compare, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    result = measure()
    if result is None:
        print("unequal")
        return 1
    text = json.dumps(result, indent=1) + "\n"
    arguments.out.write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
