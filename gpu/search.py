"""Launches of the beam search, and the memory that they work in."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.formats.errors import ResourceError
from flashtrie.formats.schema import Header
from flashtrie.formats.search import (
    SearchResult,
    SearchStats,
    check_limits,
    check_penalties,
    check_shapes,
)
from flashtrie.gpu.arguments import by_value, search_words, token_values
from flashtrie.gpu.compiler import load_module
from flashtrie.gpu.inputs import (
    NO_ERROR,
    DeviceResult,
    Given,
    as_array,
    check_ends,
    check_input,
    copied_bytes,
)
from flashtrie.gpu.plan import Plan, Shape, defines, plan_search
from flashtrie.gpu.proposals import choose_proposals

_WORK_SHARE = 0.5  # of the free memory that the teams may take
_PART_SHARE = 0.25  # that the results of a part of a batch may take, and as much its input
_KEPT_PENALTIES = 64
_KEPT_WORKSPACES = 8
_THREADS_OWN = 2  # in place of the address of a stream: the one that each thread has for itself


class Kernel:
    """A compiled variant of the search kernel, and how many of its blocks the device holds."""

    def __init__(self, compiled: Mapping[str, int]) -> None:
        """Compile it, which takes some seconds, or load it from disk."""
        self.compiled = dict(compiled)
        self.threads = compiled["THREADS"]
        self.module = load_module("search.cu", compiled, cooperative=True)
        self.function = self.module.get_function("beam_search")
        held = self.module.get_global("block_bytes")
        self.shared_bytes = int(cupy.ndarray(1, np.uint32, held).get()[0])
        self.function.max_dynamic_shared_size_bytes = self.shared_bytes
        each = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self.function.kernel.ptr, self.threads, self.shared_bytes
        )
        if each == 0:
            raise ResourceError(
                "the GPU is too small for the search",
                cause=f"a block takes {self.threads:,} threads and {self.shared_bytes:,} bytes",
                hint="Search with --device cpu",
            )
        self.resident_blocks = each * cupy.cuda.Device().attributes["MultiProcessorCount"]


class _Workspace:
    """Memory of the teams. What a launch finds zero, it leaves zero."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.work = cupy.empty((plan.teams, plan.work_bytes), np.uint8)
        self.work[:, : plan.zero_bytes] = 0
        self.counters = cupy.zeros(plan.counter_bytes, np.uint8)


@dataclass(frozen=True)
class Prepared:
    """A search with its arguments, which may be launched again and again, on one stream."""

    kernel: Kernel
    plan: Plan
    words: npt.NDArray[np.uint64]
    result: DeviceResult
    error: Any
    held: Any  # the memory that the arguments point to

    def launch(self) -> None:
        """Launch it on the current stream, without waiting."""
        self.kernel.function(
            (self.plan.blocks,),
            (self.kernel.threads,),
            (by_value(self.words),),
            shared_mem=self.kernel.shared_bytes,
        )


@dataclass(frozen=True)
class Batch:
    """Queries to be searched in parts that fit the device.

    `bytes` is what the input of one takes on the device, beside what lies there already. `given`
    brings the queries from one number up to another there, or as many of these as there are.
    """

    queries: int
    steps: int
    beam_width: int
    bytes: int
    given: Callable[[int, int], Given]


class Searcher:
    """Searches one trie on one device, the current one. Kernels and memory are kept."""

    def __init__(self, header: Header, trie_words: npt.NDArray[np.uint64]) -> None:
        """Nothing is compiled or allocated yet."""
        self._header = header
        self._trie_words = trie_words
        self._lock = threading.Lock()
        self._kernels: dict[Any, Kernel] = {}
        # By stream, the last used last. What is dropped goes back to its stream, behind its work.
        self._workspaces: OrderedDict[Any, tuple[Any, _Workspace]] = OrderedDict()
        self._penalties: OrderedDict[Any, Any] = OrderedDict()
        # To the variant that is compiled and to the plan, for measurements and for tests.
        self.changes: dict[str, int] = {}
        self.most_group: int | None = None

    def search(self, batch: Batch, stats: SearchStats | None = None) -> SearchResult:
        """Search a batch, in parts where it does not fit, and bring the results here."""
        each = self._queries_a_part(batch)
        parts = []
        counts = np.zeros((2, batch.queries, batch.steps), np.int64)
        for start in range(0, max(batch.queries, 1), each):
            given = batch.given(start, start + each)
            shape = (2, *given.tokens.shape[:2])
            here = None if stats is None else cupy.zeros(shape, np.int64)
            parts.append(self._search_part(given, start, here))
            if here is not None:
                counts[:, start : start + each] = here.get()
            del given  # before the next one takes its place
        if stats is not None:
            stats.active_beams, stats.candidates = counts
        return SearchResult.join(parts)

    def _search_part(self, given: Given, first_query: int, counts: Any) -> SearchResult:
        if given.tokens.size == 0:
            result = self._nothing(given)
        else:
            prepared = self.prepare(given, counts)
            prepared.launch()
            code = int(prepared.error.get()[0])
            if code != NO_ERROR:
                given.raise_error(code, first_query)
            result = prepared.result
        if given.proposals is not None:
            given.proposals.check(first_query)
        return result.to_host()

    def launch(self, given: Given) -> DeviceResult:
        """Search a batch without waiting. NaN and +inf are as -inf then, and not reported."""
        if given.tokens.size == 0:
            return self._nothing(given)
        prepared = self.prepare(given)
        prepared.launch()
        return replace(prepared.result, held=given)

    def batch(
        self,
        tokens: Any,
        logprobs: Any,
        beam_width: int,
        top_k: int | None,
        end_logprobs: Any,
        length_penalty: float,
    ) -> Batch:
        """The same as `check`, but that nothing goes to the device yet. Raises UsageError."""
        limit = check_limits(beam_width, top_k)
        tokens, logprobs = as_array(tokens), as_array(logprobs)
        queries, steps, width = check_shapes(tokens, logprobs)
        end = check_ends(end_logprobs, queries, steps)
        taken = copied_bytes(tokens, tokens.dtype) + copied_bytes(logprobs, np.float32)
        taken += 4 * tokens.size if limit < width else 0  # ranks

        def given(start: int, stop: int) -> Given:
            return self.check(
                tokens[start:stop],
                logprobs[start:stop],
                beam_width,
                top_k,
                None if end is None else end[start:stop],
                length_penalty,
            )

        return Batch(queries, steps, beam_width, taken // max(queries, 1), given)

    def check(
        self,
        tokens: Any,
        logprobs: Any,
        beam_width: int,
        top_k: int | None,
        end_logprobs: Any,
        length_penalty: float,
    ) -> Given:
        """Check the input and bring it to the device. Raises UsageError."""
        limit = check_limits(beam_width, top_k)
        given = check_input(
            tokens,
            logprobs,
            end_logprobs,
            lambda steps: self._penalties_of(steps, length_penalty),
            beam_width,
        )
        if limit >= given.tokens.shape[2]:
            return given
        ranks = choose_proposals(self._trie_words, given.tokens, given.logprobs, limit)
        return replace(given, ranks=ranks)

    def prepare(self, given: Given, counts: Any = None) -> Prepared:
        """The search of checked input that is not empty, to be launched on the current stream.

        `counts`, int64 [2, Q, T] and zero, gets the beams after each step and the candidates that
        were counted in it.
        """
        queries, given_steps, width = given.tokens.shape
        steps = self._steps(given_steps)
        kernel = self._kernel(width)
        shape = Shape(queries, given_steps, steps, width, given.beam_width)
        workspace = self._workspace(shape, kernel)
        result = self._empty(given)
        # Not of the workspace: threads that share a stream share that.
        error = cupy.full(1, np.uint64(NO_ERROR), np.uint64)
        values = {
            **workspace.plan.fields,
            **token_values(given.tokens),
            "logprobs": given.logprobs.data.ptr,
            "end_logprobs": given.end_logprobs.data.ptr,
            "end_stride": 0 if len(given.end_logprobs) < queries else given_steps + 1,
            "penalties": given.penalties.data.ptr,
            "ranks": _pointer(given.ranks),
            "work": workspace.work.data.ptr,
            "counters": workspace.counters.data.ptr,
            "counts": result.counts.data.ptr,
            "key_ids": result.key_ids.data.ptr,
            "scores": result.scores.data.ptr,
            "lengths": result.lengths.data.ptr,
            "result_tokens": result.tokens.data.ptr,
            "values": _pointer(result.values),
            "active_beams": 0 if counts is None else counts[0].data.ptr,
            "candidates": 0 if counts is None else counts[1].data.ptr,
            "error": error.data.ptr,
        }
        words = search_words(self._trie_words, values)
        held = (given, counts, workspace)
        return Prepared(kernel, workspace.plan, words, result, error, held)

    def _kernel(self, width: int) -> Kernel:
        """The variant for so many proposals a step, of those that fit the device."""
        device = cupy.cuda.Device().id
        compiled = defines(width, self.changes, _shared_bytes(device))
        key = (device, *sorted(compiled.items()))
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = Kernel(compiled)
            return self._kernels[key]

    def _workspace(self, shape: Shape, kernel: Kernel) -> _Workspace:
        """That of the current stream for a shape. Of each stream the last one is kept."""
        stream = _current_stream()
        key = (shape, kernel, self.most_group)
        with self._lock:
            held = self._workspaces.pop(stream, None)
            if held is None or held[0] != key:
                held = None
                while len(self._workspaces) >= _KEPT_WORKSPACES:
                    self._workspaces.popitem(last=False)
                budget = int(_free_bytes() * _WORK_SHARE)
                blocks = kernel.resident_blocks
                plan = plan_search(shape, kernel.compiled, blocks, budget, self.most_group)
                held = (key, _Workspace(plan))
            self._workspaces[stream] = held
            return held[1]

    def _steps(self, steps: int) -> int:
        """Of those that are given, the ones that can find anything."""
        return min(steps, self._header.max_length)

    def _empty(self, given: Given) -> DeviceResult:
        queries = len(given.tokens)
        steps = self._steps(given.tokens.shape[1])
        valued = bool(self._header.values)
        return DeviceResult.empty(queries, steps, given.beam_width, valued=valued)

    def _nothing(self, given: Given) -> DeviceResult:
        result = self._empty(given)
        result.clear()
        return result

    def _queries_a_part(self, batch: Batch) -> int:
        result = DeviceResult.bytes(self._steps(batch.steps), batch.beam_width)
        return max(1, int(_free_bytes() * _PART_SHARE) // max(result, batch.bytes))

    def _penalties_of(self, steps: int, length_penalty: float) -> Any:
        """On the device; an array for each stream, whose order then covers its copying and end."""
        host = check_penalties(steps, length_penalty)
        key = (_current_stream(), steps, length_penalty)
        with self._lock:
            held = self._penalties.pop(key, None)
            if held is None:
                held = cupy.asarray(host)
                while len(self._penalties) >= _KEPT_PENALTIES:
                    self._penalties.popitem(last=False)
            self._penalties[key] = held
            return held


def _current_stream() -> tuple[int, int]:
    """What tells the current stream of the device from its others."""
    pointer = int(cupy.cuda.get_current_stream().ptr)
    return pointer, threading.get_ident() if pointer == _THREADS_OWN else 0


@functools.cache
def _shared_bytes(device: int) -> int:
    """Shared memory that a block of a device may have."""
    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])


def _free_bytes() -> int:
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def _pointer(array: Any) -> int:
    return 0 if array is None else int(array.data.ptr)
