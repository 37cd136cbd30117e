"""Exact top-k and top-p of logits without a sort: masked logits, candidates or one token a row.

    masked = sampling.mask(logits, top_k=50, top_p=0.9)
    found = sampling.candidates(logits, top_k=50)
    drawn = sampling.sample(logits, seeds=7, top_p=0.9, temperature=0.8)

Logits are [B, V]: float32, float16 or bfloat16. NumPy arrays are taken on the CPU; CuPy arrays,
PyTorch tensors and whatever else speaks DLPack on the GPU, where they lie there. Each row costs
one read on the GPU, two where p is deep, and O(V) on the CPU.

Temperature comes first, then top-k, then top-p on the renormalised survivors. Top-k keeps exactly
k entries, of equal values the lowest indices; top-p keeps the smallest prefix, by value falling
and index rising, whose mass reaches p. `ties="sort"` keeps what a sort-based sampler keeps: all
copies of the k-th value, and of equal values at the boundary of p the highest indices. k <= 0 or
k >= V, and p >= 1, are off; temperature 0 and p <= 0 keep the largest value alone. -inf is never
kept; where a row holds +inf, those entries alone are eligible and share the mass. NaN counts as
-inf, and is an error unless `check=False`.

`top_k`, `top_p`, `temperature`, `seeds` and `positions` are one number for all rows or arrays
[B], which for logits on the GPU may lie there too. Whole numbers are whole; seeds and positions
count modulo 2^64. On the GPU nothing waits for the device but the check of NaN, capacity and what
lies there of p and temperature, at the end: with `check=False` calls are asynchronous and can be
captured into a graph, given a `workspace` that was used before with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flashtrie.formats.dlpack import device_of
from flashtrie.formats.errors import InputError, UsageError
from flashtrie.formats.sampling import (
    broadcast,
    check_numbers,
    check_output,
    modulo,
    number,
    whole,
)

if TYPE_CHECKING:
    from flashtrie.gpu.sampling import Workspace

__all__ = ["Candidates", "Tokens", "candidates", "mask", "sample", "workspace"]

_NAMED_ROWS = 5


@dataclass(frozen=True)
class Candidates:
    """The kept entries of each row, as arrays of the logits' library.

    `indices` int64 and `values` (the logits' dtype) [B, C]: unused places hold -1 and -inf.
    `counts` int64 [B]: how many the row keeps, above C where the capacity was too small.
    `log_mass` float64 [B]: ln of the sum, over the kept, of exp((x - max) / temperature).
    """

    indices: Any
    values: Any
    counts: Any
    log_mass: Any


@dataclass(frozen=True)
class Tokens:
    """One token a row, int64 [B], and its log-probability among the kept, float32 [B].

    -1 and -inf for a row of -inf only.
    """

    tokens: Any
    logprobs: Any


def mask(
    logits: Any,
    top_k: Any = 0,
    top_p: Any = 1.0,
    temperature: Any = 1.0,
    *,
    ties: str = "index",
    out: Any = None,
    check: bool = True,
    threads: int | None = None,
    workspace: Workspace | None = None,
) -> Any:
    """The kept logits, unchanged, and -inf elsewhere; in place with `out=logits`.

    `out` has the dtype and shape of the logits and lies where they do.
    float32 costs 8 bytes an element on the GPU for a k up to 2,048, else up to 16.
    """
    work = _work(logits, top_k, top_p, temperature, ties, threads, workspace)
    if out is not None:
        check_output(logits, out)
    return work.mask(logits, out, check)


def candidates(
    logits: Any,
    top_k: Any = 0,
    top_p: Any = 1.0,
    temperature: Any = 1.0,
    *,
    capacity: int | None = None,
    in_order: bool = False,
    ties: str = "index",
    check: bool = True,
    threads: int | None = None,
    workspace: Workspace | None = None,
) -> Candidates:
    """What each row keeps, in arrays [B, capacity].

    `capacity` is by default the largest k where k is one number and on, else V; a row that keeps
    more is an error, or with `check=False` gives its first by value falling and index rising.
    With `in_order`, and whenever the capacity is up to 2,048, each row is in that order; else the
    order is fixed but unspecified.
    """
    work = _work(logits, top_k, top_p, temperature, ties, threads, workspace)
    room = work.size
    if capacity is not None:
        room = whole(capacity, "capacity")
    elif isinstance(work.top_k, int) and work.top_k:
        room = work.top_k
    if room < 1:
        raise UsageError("capacity is at least 1", cause=f"got {capacity}")
    return work.candidates(min(room, work.size), in_order, check)


def sample(
    logits: Any,
    seeds: Any,
    positions: Any = None,
    top_k: Any = 0,
    top_p: Any = 1.0,
    temperature: Any = 1.0,
    *,
    ties: str = "index",
    check: bool = True,
    threads: int | None = None,
    workspace: Workspace | None = None,
) -> Tokens:
    """Draw one token a row from the kept, renormalised distribution.

    The token with the largest (x - max) / temperature + Gumbel noise, which is a function of
    (seed, position, token) alone: independent of the batch and of the device. `positions` is by
    default the row number.
    """
    seeds = modulo(whole(seeds, "seeds"))
    positions = None if positions is None else modulo(whole(positions, "positions"))
    work = _work(logits, top_k, top_p, temperature, ties, threads, workspace)
    return work.sample(seeds, positions, check)


def workspace() -> Workspace:
    """Device memory to use again from call to call, of one stream; needed for graphs."""
    from flashtrie.gpu.sampling import Workspace

    return Workspace()


def _work(
    logits: Any,
    top_k: Any,
    top_p: Any,
    temperature: Any,
    ties: str,
    threads: int | None,
    workspace: Workspace | None,
) -> _OnHost | _OnDevice:
    if ties not in ("index", "sort"):
        raise UsageError('ties is "index" or "sort"', cause=f"got {ties!r}")
    shape = getattr(logits, "shape", None)
    if shape is None or len(shape) != 2 or 0 in shape:
        raise InputError(
            "logits are an array [rows, vocabulary] with at least one of each",
            cause=f"got shape {None if shape is None else tuple(shape)}",
        )
    if shape[1] >= 1 << 32:
        raise InputError("a row has fewer than 2^32 entries", cause=f"got {shape[1]:,}")
    if not hasattr(logits, "__dlpack_device__"):
        raise InputError("logits are a NumPy array or speak DLPack", cause=f"got {type(logits)}")
    top_k = whole(top_k, "top_k")
    if isinstance(top_k, int):
        top_k = top_k if 0 < top_k < shape[1] else 0
    top_p, temperature = number(top_p, "top_p"), number(temperature, "temperature")
    kind = _OnHost if device_of(logits) is None else _OnDevice
    return kind(logits, top_k, top_p, temperature, ties == "sort", threads, workspace)


def _check_nan(nan: Any) -> None:
    rows = np.flatnonzero(nan)
    if len(rows):
        named = ", ".join(str(row) for row in rows[:_NAMED_ROWS])
        more = "" if len(rows) <= _NAMED_ROWS else f" and {len(rows) - _NAMED_ROWS} more"
        raise InputError(
            f"logits hold NaN in row {named}{more}",
            hint="check=False takes NaN as -inf",
        )


def _check_capacity(counts: Any, capacity: int) -> None:
    most = int(counts.max())
    if most > capacity:
        raise InputError(
            f"row {int(counts.argmax())} keeps {most:,} entries",
            cause=f"the capacity is {capacity:,}",
            hint="raise the capacity, or take the first ones with check=False",
        )


class _OnHost:
    """Selection on the CPU, over threads."""

    def __init__(
        self,
        logits: Any,
        top_k: Any,
        top_p: Any,
        temperature: Any,
        by_sort: bool,
        threads: int | None,
        workspace: Workspace | None,
    ) -> None:
        from flashtrie.cpu import sampling

        self.like, self.top_k = logits, top_k
        rows, self.size = logits.shape
        self.matrix = self._plain(logits)
        self.selection = sampling.select(
            self.matrix,
            self._each(top_k, np.int64, "top_k"),
            self._each(top_p, np.float64, "top_p"),
            self._each(temperature, np.float64, "temperature"),
            by_sort=by_sort,
            threads=threads,
        )

    def mask(self, logits: Any, out: Any, check: bool) -> Any:
        self._check(check)
        if out is None:
            out = logits.copy() if isinstance(logits, np.ndarray) else logits.clone()
        self.selection.mask(self._plain(out))
        return out

    def candidates(self, capacity: int, in_order: bool, check: bool) -> Candidates:
        self._check(check)
        if check:
            _check_capacity(self.selection.counts, capacity)
        indices, values = self.selection.candidates(capacity)
        return Candidates(
            self._back(indices),
            self._values_back(values),
            self._back(self.selection.counts.copy()),
            self._back(self.selection.log_mass),
        )

    def sample(self, seeds: Any, positions: Any, check: bool) -> Tokens:
        self._check(check)
        if positions is None:
            positions = np.arange(len(self.matrix))
        tokens, logprobs = self.selection.tokens(
            self._each(seeds, np.int64, "seeds"), self._each(positions, np.int64, "positions")
        )
        return Tokens(self._back(tokens), self._back(logprobs.astype(np.float32)))

    def _check(self, check: bool) -> None:
        if check:
            _check_nan(self.selection.nan)

    def _plain(self, array: Any) -> Any:
        """The same memory as a NumPy array; bfloat16 as its bits."""
        if not isinstance(array, np.ndarray):
            if str(array.dtype) == "torch.bfloat16":
                array = array.view(_torch().int16)
                return np.from_dlpack(array.detach()).view(np.uint16)
            array = np.from_dlpack(array.detach() if hasattr(array, "detach") else array)
        if array.dtype.name == "bfloat16":
            return array.view(np.uint16)
        if array.dtype not in (np.float32, np.float16):
            raise InputError(
                "logits are float32, float16 or bfloat16", cause=f"got {array.dtype.name}"
            )
        return array

    def _each(self, value: Any, dtype: Any, name: str) -> Any:
        return broadcast(np, np.asarray(value), dtype, len(self.like), name)

    def _back(self, array: np.ndarray[Any, Any]) -> Any:
        return array if isinstance(self.like, np.ndarray) else _torch().from_numpy(array)

    def _values_back(self, values: np.ndarray[Any, Any]) -> Any:
        if isinstance(self.like, np.ndarray):
            return values.view(self.like.dtype)
        if values.dtype == np.uint16:
            return _torch().from_numpy(values.view(np.int16)).view(_torch().bfloat16)
        return self._back(values)


class _OnDevice:
    """Selection on the GPU; CuPy's current stream, or PyTorch's for its tensors."""

    def __init__(
        self,
        logits: Any,
        top_k: Any,
        top_p: Any,
        temperature: Any,
        by_sort: bool,
        threads: int | None,
        workspace: Workspace | None,
    ) -> None:
        self.like, self.by_sort, self.workspace = logits, by_sort, workspace
        self.top_k = top_k
        self.unchecked: list[tuple[Any, str]] = []  # arrays of p and temperature on the device
        self.is_torch = type(logits).__module__.partition(".")[0] == "torch"
        self.rows, self.size = (int(extent) for extent in logits.shape)
        self.limits = (top_p, temperature)

    def mask(self, logits: Any, out: Any, check: bool) -> Any:
        if out is None:
            with self._stream():
                out = _torch().empty_like(logits) if self.is_torch else self._empty_like(logits)

        def wanted(wish: Any) -> Any:
            return wish(masked=self._matrix(out))

        self._run(wanted, check, None)
        return out

    def candidates(self, capacity: int, in_order: bool, check: bool) -> Candidates:
        def wanted(wish: Any) -> Any:
            return wish(width=capacity, in_order=in_order)

        found = self._run(wanted, check, capacity)
        return Candidates(
            self._back(found.indices),
            self._values_back(found.values),
            self._back(found.counts),
            self._back(found.log_mass),
        )

    def sample(self, seeds: Any, positions: Any, check: bool) -> Tokens:
        def wanted(wish: Any) -> Any:
            return wish(
                seeds=self._each(seeds, np.int64, "seeds"),
                positions=None
                if positions is None
                else self._each(positions, np.int64, "positions"),
            )

        found = self._run(wanted, check, None)
        return Tokens(self._back(found.tokens), self._back(found.logprobs))

    def _run(self, wanted: Callable[[Any], Any], check: bool, capacity: int | None) -> Any:
        from flashtrie.gpu import sampling

        with self._stream():
            top_p, temperature = self.limits
            found = sampling.select(
                self._matrix(self.like),
                self._each(self.top_k, np.int64, "top_k"),
                self._each(top_p, np.float64, "top_p"),
                self._each(temperature, np.float64, "temperature"),
                wanted(sampling.Wanted),
                by_sort=self.by_sort,
                workspace=self.workspace,
            )
            if check:
                for numbers, name in self.unchecked:
                    check_numbers(numbers.get(), name)
                _check_nan(found.nan.get())
                if capacity is not None:
                    _check_capacity(found.counts.get(), capacity)
        return found

    def _stream(self) -> AbstractContextManager[None]:
        from flashtrie.gpu.inputs import stream_of

        return stream_of(device_of(self.like) or 0, self.like)

    def _array(self, array: Any) -> Any:
        """The same memory as a CuPy array; bfloat16 as its bits."""
        import cupy

        if isinstance(array, cupy.ndarray):
            return array
        if self.is_torch:
            array = array.detach()
            if array.dtype == _torch().bfloat16:
                return cupy.from_dlpack(array.view(_torch().int16)).view(np.uint16)
        return cupy.from_dlpack(array)

    def _matrix(self, array: Any) -> Any:
        from flashtrie.gpu import sampling

        name = str(array.dtype).removeprefix("torch.")
        if name not in sampling.ELEMENTS:
            raise InputError("logits are float32, float16 or bfloat16", cause=f"got {name}")
        flat = self._array(array)
        stride, step = flat.strides
        if step != flat.itemsize and self.size > 1:
            raise InputError("a row of logits on the GPU is contiguous", cause=f"step {step} bytes")
        return sampling.Matrix(
            pointer=flat.data.ptr,
            stride=stride // flat.itemsize,
            rows=self.rows,
            size=self.size,
            element=sampling.ELEMENTS[name],
            owner=flat,
        )

    def _each(self, value: Any, dtype: Any, name: str) -> Any:
        if isinstance(value, (int, float)):
            return value
        import cupy

        from flashtrie.gpu.inputs import as_array

        array = as_array(value)
        if isinstance(array, np.ndarray):
            return cupy.asarray(broadcast(np, array, dtype, self.rows, name))
        array = broadcast(cupy, array, dtype, self.rows, name)
        if dtype == np.float64:
            self.unchecked.append((array, name))
        return array

    def _empty_like(self, logits: Any) -> Any:
        import cupy

        return cupy.empty(logits.shape, logits.dtype)

    def _back(self, array: Any) -> Any:
        return _torch().from_dlpack(array) if self.is_torch else array

    def _values_back(self, values: Any) -> Any:
        if not self.is_torch:
            return values.view(self.like.dtype)
        if self.like.dtype == _torch().float32:
            return self._back(values)
        return self._back(values.view(np.int16)).view(self.like.dtype)


def _torch() -> Any:
    import torch  # only reached with a tensor at hand

    return torch
