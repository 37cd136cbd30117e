"""Arrays that wait for a later stage: in memory, or in one file of the scratch folder.

Spill files are written and read with plain calls, never mapped, so that resident memory is what
the build holds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flashtrie.builder.scratch import full_disk
from flashtrie.formats.jit import Int, jit

Array = npt.NDArray[Any]
Octets = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

_MOST_BUFFERED, _LEAST_BUFFERED = 1 << 18, 1 << 12
_MOST_CLAIMED = 4 << 20  # bytes that a thread takes out of the buffers to write them


@dataclass(frozen=True)
class Spill:
    """The scratch folder, and what is held beside it.

    `range_bytes` for a range in work, and `buffer_bytes` of what waits to be written. `need` is
    about what all files will take, for a message.
    """

    folder: Path
    range_bytes: int
    buffer_bytes: int
    need: int

    def pieces(self, name: str, count: int) -> PieceFiles:
        """Files of `count` ranges, which share the buffer."""
        wait = min(_MOST_BUFFERED, max(_LEAST_BUFFERED, self.buffer_bytes // max(count, 1)))
        return PieceFiles(self, name, count, wait)

    def writing(self) -> AbstractContextManager[None]:
        """What turns a full disk into an error that says so."""
        return full_disk(self.folder, self.need)


class Shelf:
    """Keeps arrays; in memory, or with `spill` in a file. Any thread may call it."""

    def __init__(self, spill: Spill | None, name: str) -> None:
        """The file is `name` in the scratch folder."""
        self._file = None if spill is None else _AppendFile(spill, name)

    def put(self, array: Array) -> Kept:
        """Keep a contiguous array of one dimension.

        In a file integers take as many bytes as the largest needs.
        """
        return Kept(array, self._file)

    def close(self) -> None:
        """Close the file. What was kept in it cannot be read any more."""
        if self._file is not None:
            self._file.close()


class Kept:
    """An array on a shelf."""

    def __init__(self, array: Array, file: _AppendFile | None) -> None:
        """Keep `array`, in a file if there is one."""
        self._dtype = array.dtype
        self._file = file
        self._array = array if file is None else None
        self._width = self._dtype.itemsize if file is None else _byte_width(array)
        self._offset = 0 if file is None else file.append(_narrow(array, self._width))

    def get(self, start: int, size: int) -> Array:
        """Elements `start` to `start + size`."""
        if self._file is None:
            assert self._array is not None
            return self._array[start : start + size]
        width = self._width
        data = self._file.read(self._offset + start * width, size * width)
        return _widen(np.frombuffer(data, np.uint8), width, self._dtype)


def _byte_width(array: Array) -> int:
    """Bytes that each integer needs; all that its dtype has, where some are negative."""
    if array.dtype.kind not in "iu" or not len(array) or array.min() < 0:
        return array.dtype.itemsize
    return max(1, -(-int(array.max()).bit_length() // 8))


def _narrow(array: Array, width: int) -> Octets:
    """The lowest `width` bytes of each element."""
    item = array.dtype.itemsize
    octets: Octets = array.view(np.uint8)
    if width == item:
        return octets
    return np.ascontiguousarray(octets.reshape(-1, item)[:, :width]).reshape(-1)


def _widen(octets: Octets, width: int, dtype: np.dtype[Any]) -> Array:
    if width == dtype.itemsize:
        return octets.view(dtype)
    result = np.zeros((len(octets) // width, dtype.itemsize), np.uint8)
    result[:, :width] = octets.reshape(-1, width)
    return result.reshape(-1).view(dtype)


class _AppendFile:
    def __init__(self, spill: Spill, name: str) -> None:
        self._spill = spill
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with spill.writing():
            self._descriptor = os.open(spill.folder / name, flags, 0o600)
        self._end = 0
        self._lock = threading.Lock()

    def append(self, octets: Octets) -> int:
        """Write bytes; returns their offset."""
        with self._lock:
            offset = self._end
            self._end += len(octets)
        with self._spill.writing():
            _write_at(self._descriptor, octets, offset)
        return offset

    def read(self, offset: int, size: int) -> bytearray:
        result = bytearray(size)
        done = 0
        while done < size:
            count = os.preadv(self._descriptor, [memoryview(result)[done:]], offset + done)
            if not count:
                raise EOFError(f"{self._spill.folder}: a scratch file was cut")
            done += count
        return result

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


class Column(NamedTuple):
    """Bytes for each range: `sizes` int64 [ranges] of them from `starts` int64 [ranges] on."""

    octets: Octets
    starts: I64
    sizes: I64


class PieceFiles:
    """One or two columns of bytes for each of many ranges: in files, and what waits in memory.

    Any thread may append, all ranges in one call, which copies without the GIL. The bytes of a
    column stand in the order in which they came, and those of both columns in the same.
    """

    def __init__(self, spill: Spill, name: str, count: int, wait_bytes: int) -> None:
        """Files are `name` with a range's number; each is made when `wait_bytes` wait for it."""
        self._spill = spill
        self._name = name
        self._count = count
        self._wait_bytes = wait_bytes
        self._buffers: list[Octets] = []  # of each column, the same room for each range
        self._rooms = [0, 0]
        self._waiting = np.zeros((2, count), np.int64)
        self._written = np.zeros((2, count), np.int64)
        self._lock = threading.Lock()

    def append(self, *columns: Column) -> None:
        """Append to all ranges; always as many columns."""
        r = 0
        while r < self._count:
            writes: list[tuple[int, int, int, Octets]] = []
            with self._lock:
                r = self._fill_buffers(r, columns, writes)
            for write in writes:
                self._write(*write)

    def _fill_buffers(
        self, r: int, columns: Sequence[Column], writes: list[tuple[int, int, int, Octets]]
    ) -> int:
        """Take the bytes of ranges from r on, until some MiB are to be written; the next range."""
        self._make_buffers(len(columns))
        one, two = columns[0], columns[1] if len(columns) == 2 else self._nothing()
        while r < self._count and sum(len(octets) for *_, octets in writes) < _MOST_CLAIMED:
            r = int(
                _gather(
                    r,
                    one.octets,
                    one.starts,
                    one.sizes,
                    two.octets,
                    two.starts,
                    two.sizes,
                    self._buffers[0],
                    self._buffers[1],
                    self._rooms[0],
                    self._rooms[1],
                    self._waiting,
                )
            )
            if r == self._count:
                break
            self._empty(r, writes)
            if one.sizes[r] > self._rooms[0] or two.sizes[r] > self._rooms[1]:
                for i, column in enumerate(columns):
                    begin, size = int(column.starts[r]), int(column.sizes[r])
                    self._claim(writes, i, r, column.octets[begin : begin + size])
                r += 1
        return r

    def size(self, r: int, column: int) -> int:
        """Bytes of a column of a range."""
        return int(self._written[column, r] + self._waiting[column, r])

    def read(
        self, r: int, column: int, dtype: npt.DTypeLike, start: int = 0, size: int = -1
    ) -> Array:
        """`size` bytes of a column from byte `start` on, else all that follow, as an array."""
        written, there = int(self._written[column, r]), max(0, self.size(r, column) - start)
        size = there if size < 0 else min(size, there)
        data = np.empty(size, np.uint8)
        stored = min(size, max(0, written - start))
        if stored:
            with self._path(r, column).open("rb", 0) as file:
                file.seek(start)
                _fill(file, memoryview(data.data)[:stored])
        if stored < size:
            behind = r * self._rooms[column] + start + stored - written
            data[stored:] = self._buffers[column][behind : behind + size - stored]
        return data.view(dtype)

    def remove(self, r: int) -> None:
        """Remove the files of a range, and what waits for them."""
        for column in range(2):
            if self._written[column, r]:
                self._path(r, column).unlink(missing_ok=True)
            self._written[column, r] = self._waiting[column, r] = 0

    def _path(self, r: int, column: int) -> Path:
        return self._spill.folder / f"{self._name}-{r:05d}.{'ab'[column]}"

    def _nothing(self) -> Column:
        none = np.zeros(self._count, np.int64)
        return Column(np.empty(0, np.uint8), none, none)

    def _make_buffers(self, columns: int) -> None:
        if not self._buffers:
            rooms = [self._wait_bytes // columns] * columns + [0] * (2 - columns)
            self._buffers = [np.empty(self._count * room, np.uint8) for room in rooms]
            self._rooms = rooms

    def _empty(self, r: int, writes: list[tuple[int, int, int, Octets]]) -> None:
        """What waits of a range is to be written."""
        for i, (buffer, room) in enumerate(zip(self._buffers, self._rooms, strict=True)):
            waits = buffer[r * room : r * room + int(self._waiting[i, r])]
            self._claim(writes, i, r, waits.copy())
            self._waiting[i, r] = 0

    def _claim(
        self, writes: list[tuple[int, int, int, Octets]], column: int, r: int, octets: Octets
    ) -> None:
        """Give bytes their place in a file; they are written when the lock is free again."""
        if len(octets):
            writes.append((r, column, int(self._written[column, r]), octets))
            self._written[column, r] += len(octets)

    def _write(self, r: int, column: int, offset: int, octets: Octets) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with self._spill.writing():
            descriptor = os.open(self._path(r, column), flags, 0o600)
            try:
                _write_at(descriptor, octets, offset)
            finally:
                os.close(descriptor)


def _write_at(descriptor: int, octets: Octets, offset: int) -> None:
    data = memoryview(octets.data)
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _fill(file: Any, target: memoryview) -> None:
    while target:
        count = file.readinto(target)
        if not count:
            raise EOFError(f"{file.name}: a scratch file was cut")
        target = target[count:]


@jit
def _copy(source: Octets, begin: Int, target: Octets, at: Int, n: Int) -> None:
    # Unsigned places do not count from the end where they are negative, which the loop would check.
    first, to = np.uint64(begin), np.uint64(at)
    for k in range(np.uint64(n)):
        target[to + k] = source[first + k]


@jit
def _gather(
    first: Int,
    a: Octets,
    a_starts: I64,
    a_sizes: I64,
    b: Octets,
    b_starts: I64,
    b_sizes: I64,
    buffer_a: Octets,
    buffer_b: Octets,
    room_a: Int,
    room_b: Int,
    waiting: I64,
) -> Int:
    """Copy the bytes of each range from `first` on behind those that wait.

    Returns the first range that has no room for them, the number of ranges if all have.
    """
    for r in range(first, len(a_sizes)):
        n, m = a_sizes[r], b_sizes[r]
        if n == 0 and m == 0:
            continue
        if waiting[0, r] + n > room_a or waiting[1, r] + m > room_b:
            return r
        _copy(a, a_starts[r], buffer_a, r * room_a + waiting[0, r], n)
        _copy(b, b_starts[r], buffer_b, r * room_b + waiting[1, r], m)
        waiting[0, r] += n
        waiting[1, r] += m
    return len(a_sizes)
