"""What a search is given and what it gives, as arrays on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from flashtrie.formats.errors import InputError
from flashtrie.formats.search import SearchResult, check_end_shape, check_shapes

_DLPACK_CPU = 1
NO_ERROR = 0xFFFFFFFFFFFFFFFF
_ERROR_OF_PROPOSAL = 1 << 62  # is added to the place of a proposal; places of ends come before


@dataclass(frozen=True)
class Given:
    """Checked input: tokens and logprobs [Q, T, K], [Q or 1, T + 1], [T + 1], ranks or None."""

    tokens: Any
    logprobs: Any
    end_logprobs: Any
    penalties: Any
    ranks: Any  # uint32 [Q, T, K], of proposals that were chosen before
    beam_width: int

    def part(self, start: int, stop: int) -> Given:
        """Some of the queries."""
        end = self.end_logprobs
        return Given(
            self.tokens[start:stop],
            self.logprobs[start:stop],
            end if len(end) == 1 else end[start:stop],
            self.penalties,
            None if self.ranks is None else self.ranks[start:stop],
            self.beam_width,
        )

    def raise_error(self, code: int, first_query: int) -> None:
        """Raise InputError for a code of the kernel: the first number that cannot be."""
        _, steps, width = self.tokens.shape
        hint = "Log-probabilities are finite or -inf"
        if code < _ERROR_OF_PROPOSAL:
            query, length = divmod(code, steps + 1)
            raise InputError(
                f"end log-probability {float(self.end_logprobs[query, length])}",
                f"query {first_query + query}, length {length}",
                hint="End l" + hint[1:],
            )
        row, position = divmod(code - _ERROR_OF_PROPOSAL, width)
        query, step = divmod(row, steps)
        raise InputError(
            f"log-probability {float(self.logprobs[query, step, position])}",
            f"query {first_query + query}, step {step + 1}, position {position}",
            hint=hint,
        )


@dataclass(frozen=True)
class DeviceResult:
    """Results of Q queries on the device, best first; query q has `counts[q]` of them.

    Behind them come key id -1, score -inf, length 0, value 0 and tokens 2^32 - 1, which also
    fill the rows of shorter keywords. `values` is None where the artifact has none. The arrays
    are ready when the stream has come so far.
    """

    counts: Any  # uint32 [Q]
    key_ids: Any  # int64 [Q, B]
    scores: Any  # float32 [Q, B]
    lengths: Any  # int32 [Q, B]
    tokens: Any  # uint32 [Q, B, T], T at most the length of the longest keyword
    values: Any  # int64 [Q, B] | None

    @staticmethod
    def empty(queries: int, steps: int, beam_width: int, *, valued: bool) -> DeviceResult:
        """Arrays without content."""
        shape = (queries, beam_width)
        return DeviceResult(
            cupy.empty(queries, np.uint32),
            cupy.empty(shape, np.int64),
            cupy.empty(shape, np.float32),
            cupy.empty(shape, np.int32),
            cupy.empty((*shape, steps), np.uint32),
            cupy.empty(shape, np.int64) if valued else None,
        )

    @staticmethod
    def bytes(steps: int, beam_width: int) -> int:
        """Memory of the arrays for one query, about."""
        return beam_width * (8 + 4 + 4 + 8 + 4 * steps)

    def clear(self) -> None:
        """As of a search that finds nothing."""
        nothing = {"counts": 0, "key_ids": -1, "scores": -np.inf, "lengths": 0, "values": 0}
        for name, value in nothing.items():
            if getattr(self, name) is not None:
                getattr(self, name).fill(value)
        self.tokens.fill(np.uint32(0xFFFFFFFF))

    def to_host(self) -> SearchResult:
        """The results as Trie.search gives them. Waits for the stream."""
        counts = self.counts.get().astype(np.int64)
        there = np.arange(self.key_ids.shape[1]) < counts[:, np.newaxis]
        lengths = self.lengths.get()[there]
        tokens = self.tokens.get()[there]
        return SearchResult(
            _offsets(counts),
            self.key_ids.get()[there],
            self.scores.get()[there],
            lengths,
            _offsets(lengths),
            tokens[np.arange(tokens.shape[1]) < lengths[:, np.newaxis]],
            None if self.values is None else self.values.get()[there],
        )


def _offsets(counts: Any) -> Any:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def on_device(array: Any) -> Any:
    """A CuPy array of anything with DLPack, without a copy if it is on the device already."""
    if isinstance(array, cupy.ndarray):
        return array
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] != _DLPACK_CPU:
        return cupy.from_dlpack(array)
    return cupy.asarray(np.asarray(array))


def check_input(
    tokens: Any, logprobs: Any, end_logprobs: Any, penalties: Any, beam_width: int
) -> Given:
    """Bring the input to the device; shapes and dtypes are right then. Raises UsageError."""
    tokens, logprobs = on_device(tokens), on_device(logprobs)
    queries, steps, _ = check_shapes(tokens, logprobs)
    if end_logprobs is None:
        end = cupy.zeros((1, steps + 1), np.float32)
    else:
        end = on_device(end_logprobs)
        check_end_shape(end, queries, steps)
    return Given(
        cupy.ascontiguousarray(tokens),
        cupy.ascontiguousarray(logprobs, np.float32),
        cupy.ascontiguousarray(end, np.float32),
        penalties(steps),
        None,
        beam_width,
    )
