"""Memory between unreadable pages, so that an access outside it is a crash."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
_NONE, _READ = 0, 1  # PROT_NONE, PROT_READ
_libc = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """A copy of bytes that ends where an unreadable page begins, or begins where one ends."""

    def __init__(self, data: Any, at_end: bool = True, *, writable: bool = False) -> None:
        octets = np.frombuffer(data, np.uint8)
        pages = max(-(-len(octets) // PAGE), 1)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        room = np.frombuffer(self._map, np.uint8)
        first = PAGE + (pages * PAGE - len(octets) if at_end else 0)
        self.array: npt.NDArray[np.uint8] = room[first : first + len(octets)]
        self.array[:] = octets
        at = room.ctypes.data
        _protect(at, 1, _NONE)
        _protect(at + (pages + 1) * PAGE, 1, _NONE)
        if not writable:
            _protect(at + PAGE, pages, _READ)
            self.array.flags.writeable = False


def _protect(address: int, pages: int, protection: int) -> None:
    failed = _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE), protection)
    assert not failed, os.strerror(ctypes.get_errno())


class GuardedMaps:
    """Stands in for the module mmap in formats.reader: files are copied between guards."""

    ACCESS_READ = mmap.ACCESS_READ

    def __init__(self) -> None:
        self.at_end = True

    def mmap(self, descriptor: int, size: int, access: int) -> npt.NDArray[np.uint8]:
        assert access == mmap.ACCESS_READ
        return Guarded(os.pread(descriptor, size, 0), self.at_end).array


def guarded(value: Any) -> Any:
    """An array, or a named tuple of arrays and such tuples, with a guard behind each array."""
    if isinstance(value, np.ndarray):
        copy = Guarded(np.ascontiguousarray(value).reshape(-1).view(np.uint8), writable=True).array
        return copy.view(value.dtype).reshape(value.shape)
    if isinstance(value, tuple):
        return type(value)(*map(guarded, value))
    return value


def guard_searches() -> None:
    """From now on the memory that searches and lookups write to has a guard behind each array."""
    from flashtrie.cpu import search, trie

    searches: Any = search
    lookups: Any = trie
    make_memory, make_group = searches.make_memory, lookups.make_group
    searches.make_memory = lambda *sizes: guarded(make_memory(*sizes))
    lookups.make_group = lambda: guarded(make_group())
