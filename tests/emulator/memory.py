"""Memory of the emulated device, each piece in pages of its own that end where it ends."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_ALIGNMENT = 16  # of a piece: loads of 16 bytes that begin within it stay within it

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Piece:
    """Bytes at `address`; what lies behind them cannot be read."""

    def __init__(self, size: int) -> None:
        room = -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        pages = -(-room // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        access = mmap.PROT_READ | mmap.PROT_WRITE
        base = _libc.mmap(None, pages + _PAGE, access, flags, -1, 0)
        if base in (None, 2**64 - 1):
            raise MemoryError
        if _libc.mprotect(base + pages, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = base + pages - room
        weakref.finalize(self, _libc.munmap, base, pages + _PAGE)
        # Nobody may count on zeros.
        ctypes.memset(base, 0xCD, pages)


def empty(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """An array on the device."""
    dtype = np.dtype(dtype)
    shape = (shape,) if np.isscalar(shape) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return at(Piece(size), shape, dtype)


def at(piece: Any, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """An array at the `address` of something, which lives as long."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    array: np.ndarray[Any, Any] = np.asarray(_Holder(piece, size)).view(dtype).reshape(shape)
    return array


class _Holder:
    """What NumPy makes an array of bytes of."""

    def __init__(self, piece: Any, size: int) -> None:
        self.piece = piece
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (piece.address, False),
            "version": 3,
        }
