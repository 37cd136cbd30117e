"""Arrays that wait for a later stage: in memory, or in one file of the scratch folder.

Spill files are written and read with plain calls, never mapped, so that resident memory is what
the build holds.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.builder.scratch import full_disk

Array = npt.NDArray[Any]

_MOST_BUFFERED, _LEAST_BUFFERED = 1 << 18, 1 << 12


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

    def files(self, name: str, count: int) -> list[PieceFile]:
        """`count` files that share the buffer."""
        flush = min(_MOST_BUFFERED, max(_LEAST_BUFFERED, self.buffer_bytes // max(count, 1)))
        return [PieceFile(self, f"{name}-{i:05d}", flush) for i in range(count)]

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


def _narrow(array: Array, width: int) -> npt.NDArray[np.uint8]:
    """The lowest `width` bytes of each element."""
    item = array.dtype.itemsize
    octets: npt.NDArray[np.uint8] = array.view(np.uint8)
    if width == item:
        return octets
    return np.ascontiguousarray(octets.reshape(-1, item)[:, :width]).reshape(-1)


def _widen(octets: npt.NDArray[np.uint8], width: int, dtype: np.dtype[Any]) -> Array:
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

    def append(self, octets: npt.NDArray[np.uint8]) -> int:
        """Write bytes; returns their offset."""
        data = memoryview(octets.data)
        with self._lock:
            offset = self._end
            self._end += len(data)
        with self._spill.writing():
            done = 0
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], offset + done)
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
        os.close(self._descriptor)


class PieceFile:
    """Two columns of bytes that grow together, each in a file, the last bytes in memory."""

    def __init__(self, spill: Spill, name: str, flush_bytes: int) -> None:
        """Files are `name` with two suffixes; they are made when `flush_bytes` wait."""
        self._spill = spill
        self._paths = spill.folder / f"{name}.a", spill.folder / f"{name}.b"
        self._flush_bytes = flush_bytes
        self._pending = bytearray(), bytearray()
        self._written = [0, 0]
        self._lock = threading.Lock()

    def append(self, a: Array, b: Array | None) -> None:
        """Append to the first column and, if given, the second. Any thread may call it."""
        with self._lock:
            self._pending[0].extend(a.view(np.uint8).data)
            if b is not None:
                self._pending[1].extend(b.view(np.uint8).data)
            if len(self._pending[0]) + len(self._pending[1]) >= self._flush_bytes:
                self._flush()

    def size(self, column: int) -> int:
        """Bytes of a column."""
        return self._written[column] + len(self._pending[column])

    def read(self, column: int, dtype: npt.DTypeLike, start: int = 0, size: int = -1) -> Array:
        """`size` bytes of a column from byte `start` on, else all that follow, as an array."""
        written, there = self._written[column], max(0, self.size(column) - start)
        size = there if size < 0 else min(size, there)
        data = bytearray(size)
        stored = min(size, max(0, written - start))
        if stored:
            with self._paths[column].open("rb", 0) as file:
                file.seek(start)
                _fill(file, memoryview(data)[:stored])
        behind = start + stored - written
        data[stored:] = self._pending[column][behind : behind + size - stored]
        return np.frombuffer(data, dtype)

    def remove(self) -> None:
        """Remove the files and what waits."""
        for path, pending in zip(self._paths, self._pending, strict=True):
            path.unlink(missing_ok=True)
            pending.clear()

    def _flush(self) -> None:
        for i, (path, pending) in enumerate(zip(self._paths, self._pending, strict=True)):
            if pending:
                with self._spill.writing(), path.open("ab", 0) as file:
                    _write(file, pending)
                self._written[i] += len(pending)
                pending.clear()


def _write(file: Any, data: bytearray) -> None:
    done = 0
    while done < len(data):
        # Released at once: a buffer with views cannot be emptied.
        with memoryview(data) as view, view[done:] as rest:
            done += file.write(rest)


def _fill(file: Any, target: memoryview) -> None:
    while target:
        count = file.readinto(target)
        if not count:
            raise EOFError(f"{file.name}: a scratch file was cut")
        target = target[count:]
