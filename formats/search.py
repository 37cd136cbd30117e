"""What a search is given and what it gives: checked the same way for every engine."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats.errors import InputError, UsageError
from flashtrie.formats.schema import MAX_LENGTH

# In place of any integer that is no token of the vocabulary.
ABSENT = 2**32 - 1

MAX_WIDTH = 1 << 16  # of a beam, and of a step's proposals
DEFAULT_BEAM_WIDTH = 1000
DEFAULT_LOGITS_TOP_K = 1000


@dataclass(frozen=True)
class SearchResult:
    """Results of Q queries, best first: those of query q are offsets[q] to offsets[q + 1].

    The tokens of result r are tokens[token_offsets[r]:token_offsets[r + 1]], `lengths[r]` many.
    `values` is None where the artifact has none.
    """

    offsets: npt.NDArray[np.int64]  # [Q + 1]
    key_ids: npt.NDArray[np.int64]  # [R]
    scores: npt.NDArray[np.float32]  # [R]
    lengths: npt.NDArray[np.int32]  # [R]
    token_offsets: npt.NDArray[np.int64]  # [R + 1]
    tokens: npt.NDArray[np.uint32]
    values: npt.NDArray[np.int64] | None  # [R]

    @staticmethod
    def join(parts: Sequence[SearchResult]) -> SearchResult:
        """The results of several batches as those of one. O(bytes)."""
        if len(parts) == 1:
            return parts[0]
        with_values = bool(parts) and parts[0].values is not None

        def together(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
            return np.concatenate([np.zeros(0, dtype), *(getattr(part, name) for part in parts)])

        return SearchResult(
            _join_offsets([part.offsets for part in parts]),
            together("key_ids", np.int64),
            together("scores", np.float32),
            together("lengths", np.int32),
            _join_offsets([part.token_offsets for part in parts]),
            together("tokens", np.uint32),
            together("values", np.int64) if with_values else None,
        )


def _join_offsets(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    lengths = [np.diff(part) for part in parts]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


@dataclass
class SearchStats:
    """What a search counted, by query and step, int64 [Q, T]: for benchmarks, and not for free.

    The beams kept after each step, and the candidates that were found in it; an early stop may
    leave some unfound, so that engines differ in these.
    """

    active_beams: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    candidates: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))


@dataclass(frozen=True)
class SearchInput:
    """The checked input of a search; its arrays are C-contiguous.

    A token that is ABSENT, or at or above the vocabulary size, is none, and its log-probability
    is not read. `end_logprobs` has one row for each query, or one of zeros for all.
    """

    tokens: npt.NDArray[np.uint32]  # [Q, T, K]
    logprobs: npt.NDArray[np.float32]  # [Q, T, K]
    end_logprobs: npt.NDArray[np.float32]  # [Q, T + 1] or [1, T + 1]
    penalties: npt.NDArray[np.float32]  # [T + 1]
    beam_width: int
    top_k: int  # MAX_WIDTH for all


def check_proposals(
    tokens: npt.NDArray[Any],
    logprobs: npt.NDArray[Any],
    *,
    beam_width: int,
    top_k: int | None,
    end_logprobs: npt.NDArray[Any] | None,
    length_penalty: float,
    vocab_size: int,
) -> SearchInput:
    """Check proposals [Q, T, K] of any integer and floating dtype, and bring them into order.

    Raises UsageError for shapes, dtypes, limits and penalties that cannot be, InputError for NaN
    and +inf, naming query, step (from 1) and position. O(Q T K); what is in order is not copied.
    """
    limit = check_limits(beam_width, top_k)
    tokens, logprobs = np.asarray(tokens), np.asarray(logprobs)
    queries, steps, _ = check_shapes(tokens, logprobs)
    penalties = check_penalties(steps, length_penalty)
    end = check_end_logprobs(end_logprobs, queries, steps)
    known = as_tokens(tokens, vocab_size)
    logprobs = np.ascontiguousarray(logprobs, np.float32)
    if logprobs.size and not logprobs.max() < np.inf:  # NaN is the maximum where there is one
        wrong = ~(logprobs < np.inf) & (known < vocab_size)
        if wrong.any():
            query, step, position = (int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"log-probability {logprobs[query, step, position]}",
                f"query {query}, step {step + 1}, position {position}",
                hint="Log-probabilities are finite or -inf",
            )
    return SearchInput(known, logprobs, end, penalties, beam_width, limit)


def check_shapes(tokens: Any, logprobs: Any) -> tuple[int, int, int]:
    """Check shapes and dtypes of proposals, arrays of any library: (Q, T, K). Raises UsageError."""
    if tokens.ndim != 3 or tokens.shape != logprobs.shape:
        raise UsageError(
            f"tokens {list(tokens.shape)} with logprobs {list(logprobs.shape)}",
            cause="both are [queries, steps, proposals]",
        )
    if tokens.dtype.kind not in "iu":
        raise UsageError(f"tokens of dtype {tokens.dtype}", cause="tokens are integers")
    if logprobs.dtype.kind != "f":
        raise UsageError(
            f"logprobs of dtype {logprobs.dtype}", cause="log-probabilities are floating-point"
        )
    queries, steps, width = (int(extent) for extent in tokens.shape)
    check_steps(steps)
    if width > MAX_WIDTH:
        raise UsageError(f"{width:,} proposals a step", cause=f"there can be {MAX_WIDTH:,}")
    return queries, steps, width


def check_limits(beam_width: int, top_k: int | None) -> int:
    """Check beam width (1 to 65,536) and top_k (1 or more, None for all); the latter as a number.

    Raises UsageError.
    """
    if not 1 <= beam_width <= MAX_WIDTH:
        raise UsageError(f"beam width {beam_width}", cause=f"it can be 1 to {MAX_WIDTH:,}")
    if top_k is not None and top_k < 1:
        raise UsageError(f"top_k {top_k}", cause="it must be at least 1")
    return MAX_WIDTH if top_k is None else min(top_k, MAX_WIDTH)


def check_logits(logits: npt.NDArray[Any]) -> None:
    """Check shape and dtype of logits [Q, T, W]. Raises UsageError."""
    if logits.ndim != 3:
        raise UsageError(f"logits {list(logits.shape)}", cause="they are [queries, steps, columns]")
    if logits.dtype.kind != "f" and logits.dtype.name != "bfloat16":
        raise UsageError(f"logits of dtype {logits.dtype}", cause="logits are floating-point")
    check_steps(logits.shape[1])


def check_steps(steps: int) -> None:
    """At most as many as the longest keyword may have tokens. Raises UsageError."""
    if steps > MAX_LENGTH:
        raise UsageError(f"{steps:,} steps", cause=f"no keyword is longer than {MAX_LENGTH:,}")


def as_tokens(tokens: npt.NDArray[Any], vocab_size: int) -> npt.NDArray[np.uint32]:
    """Integers of any dtype as C-contiguous uint32: what is not 0 to vocab_size - 1 is ABSENT.

    uint32 comes through as it is: ABSENT or not, what is at or above the vocabulary size is none.
    """
    if tokens.dtype == np.uint32:
        return np.ascontiguousarray(tokens)
    outside = tokens >= vocab_size if vocab_size <= np.iinfo(tokens.dtype).max else None
    negative = tokens < 0 if tokens.dtype.kind == "i" else None
    result = tokens.astype(np.uint32, order="C")
    for absent in (outside, negative):
        if absent is not None:
            result[absent] = ABSENT
    return result


def check_end_shape(end: Any, queries: int, steps: int) -> None:
    """Check shape and dtype of end log-probabilities, of any library. Raises UsageError."""
    if end.shape != (queries, steps + 1) or end.dtype.kind != "f":
        raise UsageError(
            f"end_logprobs {list(end.shape)} of dtype {end.dtype}",
            cause=f"{queries} queries of {steps} steps take [{queries}, {steps + 1}] floats",
        )


def check_end_logprobs(
    end_logprobs: npt.NDArray[Any] | None, queries: int, steps: int
) -> npt.NDArray[np.float32]:
    """float32 [Q, T + 1], or [1, T + 1] of zeros where there are none.

    Raises UsageError, InputError."""
    if end_logprobs is None:
        return np.zeros((1, steps + 1), np.float32)
    end = np.asarray(end_logprobs)
    check_end_shape(end, queries, steps)
    end = np.array(end, np.float32)
    end[:, 0] = 0  # never read
    wrong = ~(end < np.inf)
    if wrong.any():
        query, length = (int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"end log-probability {end[query, length]}",
            f"query {query}, length {length}",
            hint="End log-probabilities are finite or -inf",
        )
    return end


@functools.lru_cache(maxsize=64)
def check_penalties(steps: int, length_penalty: float) -> npt.NDArray[np.float32]:
    """float32(float64(t) ** a) for t = 0 to T, read-only; entry 0 is unused. Raises UsageError."""
    result = np.ones(steps + 1, np.float32)
    if not math.isfinite(length_penalty):
        raise UsageError(f"length penalty {length_penalty}", cause="it must be finite")
    if length_penalty:
        with np.errstate(over="ignore", under="ignore"):
            for t in range(1, steps + 1):
                result[t] = np.float32(np.float64(t) ** np.float64(length_penalty))
                if not 0 < result[t] < np.inf:
                    raise UsageError(
                        f"length penalty {length_penalty}",
                        cause=f"{t} to that power is {result[t]} in float32",
                    )
    result.flags.writeable = False
    return result
