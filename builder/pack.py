"""Bits and integers of many ranges, joined into the words of one section."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from threading import Event
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from flashtrie.formats import bits
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.schema import BLOCK_BITS, Coding, words
from flashtrie.formats.writer import ArtifactWriter

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
_T = TypeVar("_T")
_R = TypeVar("_R")

# Elements packed by one call: a multiple of 512, so that chunks of any width begin at a word, and
# those of a bitmap at a block of its directory.
CHUNK = 1 << 19


def join_bits(parts: Iterable[tuple[U64, int]]) -> U64:
    """The words of the bitmap that is the concatenation of (words, bits) parts.

    About 1 ns per 64 bits.
    """
    parts = list(parts)
    result = np.zeros(words(sum(n for _, n in parts)), np.uint64)
    at = 0
    for source, n in parts:
        _append(result, at, source, n)
        at += n
    return result


class _Coded(NamedTuple):
    """A chunk of the integers `start` to `stop`, of which low parts and flags are written.

    directory: that of its flags; high: its high parts, `high_bits` bits in all.
    """

    start: int
    stop: int
    directory: Array
    high: U64
    high_bits: int


class CodedWriter:
    """Writes coded arrays (docs/format.md, Labels) into the sections of one prefix."""

    def __init__(
        self, writer: ArtifactWriter, prefix: str, rank_dtype: type, pool: Executor, threads: int
    ) -> None:
        """`prefix` is that of the sections, label for label_low; `rank_dtype` of its directory."""
        self._writer = writer
        self._prefix = prefix
        self._rank_dtype = rank_dtype
        self._pool = pool
        self._threads = threads

    def write(self, parts: Iterable[Array], count: int, coding: Coding, at: dict[str, int]) -> None:
        """Code the concatenation of `parts`, `count` integers, and write it at the elements `at`.

        All of it goes out chunk by chunk, so that what is held does not grow with the array.
        """
        if not count:
            return

        def code(span: tuple[int, Array]) -> _Coded:
            """Write what has its place: the low parts and the flags."""
            start, values = span
            n = len(values)
            flag = np.zeros(words(n) if coding.high_bits else 0, np.uint64)
            low, high = (np.zeros(words(n * width), np.uint64) for width in coding[:2])
            highs = _code(values, coding.low_bits, coding.high_bits, low, flag, high)
            self._write("low", at, low, start * coding.low_bits // 64)
            if not coding.high_bits:
                return _Coded(start, start + n, flag, high, 0)
            self._write("flag", at, flag, start // 64)
            directory = bits.rank_directory(flag, n, self._rank_dtype)
            return _Coded(start, start + n, directory, high, highs * coding.high_bits)

        ones = high_at = 0
        begun = np.uint64(0)  # the last word of the high parts so far, if it is not full
        for coded in ordered_map(self._pool, code, _chunks(parts), self._threads):
            if not coding.high_bits:
                continue
            # A chunk before the last is whole blocks, and has the first entry of the next as well.
            directory = coded.directory + self._rank_dtype(ones)
            entries = directory if coded.stop == count else directory[:-1]
            self._write("flag_rank", at, entries, coded.start // BLOCK_BITS)
            ones = int(directory[-1])
            shift = high_at % 64
            joined = np.zeros(words(shift + coded.high_bits), np.uint64)
            if shift:
                joined[0] = begun
            _append(joined, shift, coded.high, coded.high_bits)
            self._write("high", at, joined, high_at // 64)
            high_at += coded.high_bits
            begun = joined[-1] if high_at % 64 else np.uint64(0)

    def _write(self, part: str, at: dict[str, int], array: Array, offset: int = 0) -> None:
        name = f"{self._prefix}_{part}"
        self._writer.write(name, at[name] + offset, array)


def write_packed(
    writer: ArtifactWriter,
    name: str,
    parts: Iterable[I64],
    minimum: int,
    width: int,
    pool: Executor,
    threads: int,
) -> None:
    """Pack the concatenation of `parts`, each minus `minimum`, and write it as section `name`."""
    if not width:
        return

    def code(span: tuple[int, Array]) -> tuple[int, U64]:
        start, values = span
        # Modulo 2^64: the difference may be larger than an int64.
        unsigned = values.view(np.uint64) - np.uint64(minimum % 2**64)
        out = np.zeros(words(len(values) * width), np.uint64)
        _pack(unsigned, width, out)
        return start, out

    for start, out in ordered_map(pool, code, _chunks(parts), threads):
        writer.write(name, start * width // 64, out)


def _chunks(parts: Iterable[Array]) -> Iterator[tuple[int, Array]]:
    """(start, elements) of every chunk of the concatenation of `parts`."""
    start, have, pending = 0, 0, list[Array]()
    for part in parts:
        while len(part):
            piece = part[: CHUNK - have]
            part = part[len(piece) :]
            pending.append(piece)
            have += len(piece)
            if have == CHUNK:
                yield start, np.concatenate(pending)
                start, have, pending = start + CHUNK, 0, []
    if have:
        yield start, np.concatenate(pending)


def ordered_map(
    pool: Executor,
    function: Callable[[_T], _R],
    items: Iterator[_T] | Sequence[_T],
    ahead: int,
    stop: Event | None = None,
) -> Iterator[_R]:
    """`function` of each item, in order, computed up to `ahead` items in advance.

    What an error or a signal finds running is waited for; `stop` is set before, to make it short.
    """
    waiting: deque[Future[_R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BaseException:
        if stop is not None:
            stop.set()
        raise
    finally:
        for future in waiting:
            future.cancel()
        # What runs yet may use what the caller closes next.
        wait(waiting)


def bit_lengths(values: Array) -> I64:
    """How many values have 0, 1, ... 64 significant bits: int64 [65]. About 2 ns a value."""
    histogram = np.zeros(65, np.int64)
    _count_lengths(values, histogram)
    return histogram


@jit
def _count_lengths(values: Array, histogram: I64) -> None:
    for x in values:
        histogram[bit_length(x)] += 1


@jit
def bit_length(x: Int) -> Int:
    """Significant bits of a non-negative integer below 2^63."""
    x = np.int64(x)
    n = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> step:
            x >>= step
            n += step
    return n + x


@jit
def _append(target: U64, at: Int, source: U64, n: Int) -> None:
    """OR the first n bits of `source`, the others being zero, into `target` from bit `at` on."""
    shift = np.uint64(at & 63)
    back = np.uint64(64 - (at & 63))
    word = at >> 6
    for k in range((n + 63) >> 6):
        target[word + k] |= source[k] << shift
        if shift and source[k] >> back:
            target[word + k + 1] |= source[k] >> back


@jit
def _put(target: U64, at: Int, width: Int, x: Int) -> None:
    """OR the `width` bits of x into `target` from bit `at` on."""
    shift = at & 63
    target[at >> 6] |= x << np.uint64(shift)
    if shift + width > 64:
        target[(at >> 6) + 1] |= x >> np.uint64(64 - shift)


@jit
def _pack(values: U64, width: Int, out: U64) -> None:
    for i in range(len(values)):
        _put(out, i * width, width, values[i])


@jit
def _code(values: Array, low_bits: Int, high_bits: Int, low: U64, flag: U64, high: U64) -> Int:
    """Split values into low parts, flags and high parts; returns how many have a high part."""
    mask = (np.uint64(1) << np.uint64(low_bits)) - np.uint64(1)
    n = 0
    for i in range(len(values)):
        x = np.uint64(values[i])
        _put(low, i * low_bits, low_bits, x & mask)
        x >>= np.uint64(low_bits)
        if x:
            flag[i >> 6] |= np.uint64(1) << np.uint64(i & 63)
            _put(high, n * high_bits, high_bits, x)
            n += 1
    return n
