"""What a search is given and what it gives, as arrays on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np

from flashtrie.formats.dlpack import device_of
from flashtrie.formats.errors import InputError
from flashtrie.formats.search import SearchResult, check_end_shape, check_shapes

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
    proposals: Any = None  # where these are of logits: Proposals, which are still to be checked

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
    are ready when `stream` has come so far. What the search reads is held as long as its results.
    """

    counts: Any  # uint32 [Q]
    key_ids: Any  # int64 [Q, B]
    scores: Any  # float32 [Q, B]
    lengths: Any  # int32 [Q, B]
    tokens: Any  # uint32 [Q, B, T], T at most the length of the longest keyword
    values: Any  # int64 [Q, B] | None
    device: int
    stream: Any
    held: Any = field(default=None, repr=False, compare=False)

    @staticmethod
    def empty(queries: int, steps: int, beam_width: int, *, valued: bool) -> DeviceResult:
        """Arrays without content, of the current stream."""
        shape = (queries, beam_width)
        return DeviceResult(
            cupy.empty(queries, np.uint32),
            cupy.empty(shape, np.int64),
            cupy.empty(shape, np.float32),
            cupy.empty(shape, np.int32),
            cupy.empty((*shape, steps), np.uint32),
            cupy.empty(shape, np.int64) if valued else None,
            cupy.cuda.Device().id,
            cupy.cuda.get_current_stream(),
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
        with cupy.cuda.Device(self.device), self.stream:
            return self._to_host()

    def _to_host(self) -> SearchResult:
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


def as_array(array: Any) -> Any:
    """What lies on a device as a CuPy array, and all else as a NumPy array.

    No copy is made, but of bfloat16 of PyTorch: it comes as float32.
    """
    if isinstance(array, (cupy.ndarray, np.ndarray)):
        return array
    if _is_tensor(array):
        array = array.detach()  # one with a gradient is not given to others
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array
    return np.asarray(array) if device_of(array) is None else cupy.from_dlpack(array)


def on_device(array: Any) -> Any:
    """A CuPy array of anything with DLPack, without a copy if it is on the device already."""
    return cupy.asarray(as_array(array))


def copied_bytes(array: Any, dtype: Any) -> int:
    """Memory on the device that a CuPy or NumPy array takes there, contiguous and of this dtype.

    Where it is both already, none.
    """
    there = isinstance(array, cupy.ndarray) and array.flags.c_contiguous
    moved = 0 if there else array.size * array.dtype.itemsize
    converted = 0 if array.dtype == dtype else array.size * np.dtype(dtype).itemsize
    return int(moved + converted)


@contextlib.contextmanager
def stream_of(device: int, *arrays: Any) -> Iterator[None]:
    """Work on a device, on the current stream there: PyTorch's where an array is its tensor.

    PyTorch gives the memory of a tensor that is dropped to the next one of the same stream, at
    once: on that stream alone nothing comes before the work that reads it is done.
    """
    with cupy.cuda.Device(device):
        if not any(_is_tensor(array) and device_of(array) is not None for array in arrays):
            yield
            return
        import torch

        stream = torch.cuda.current_stream(device).cuda_stream
        with cupy.cuda.ExternalStream(stream, device):
            yield


def _is_tensor(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def check_ends(end_logprobs: Any, queries: int, steps: int) -> Any:
    """As a NumPy or CuPy array, or None. Raises UsageError for a wrong shape or dtype."""
    if end_logprobs is None:
        return None
    end = as_array(end_logprobs)
    check_end_shape(end, queries, steps)
    return end


def check_input(
    tokens: Any, logprobs: Any, end_logprobs: Any, penalties: Any, beam_width: int
) -> Given:
    """Bring the input to the device; shapes and dtypes are right then. Raises UsageError."""
    tokens, logprobs = on_device(tokens), on_device(logprobs)
    queries, steps, _ = check_shapes(tokens, logprobs)
    end = check_ends(end_logprobs, queries, steps)
    end = cupy.zeros((1, steps + 1), np.float32) if end is None else on_device(end)
    return Given(
        cupy.ascontiguousarray(tokens),
        cupy.ascontiguousarray(logprobs, np.float32),
        cupy.ascontiguousarray(end, np.float32),
        penalties(steps),
        None,
        beam_width,
    )
