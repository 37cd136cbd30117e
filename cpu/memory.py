"""Memory that kernels write to: named tuples of arrays, which the kernels get as addresses.

Within a kernel the same named tuples hold pointers: like arrays they are indexed, but no
references to them are counted at every call (see instructions.py). A call takes one table of all
addresses, as unpacking tens of arguments would take longer than a step of a search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# An array in Python, and a pointer within a kernel.
Array = Any

_MOST_FIELDS = 8
PART_BYTES = 8 * _MOST_FIELDS  # of the table


def table_of(*parts: Any) -> npt.NDArray[np.int64]:
    """For each part, an array or a named tuple of arrays and sizes, a row of its addresses."""
    table = np.zeros((len(parts), _MOST_FIELDS), np.int64)
    for row, part in zip(table, parts, strict=True):
        fields = part if isinstance(part, tuple) else (part,)
        row[: len(fields)] = [
            field.ctypes.data if isinstance(field, np.ndarray) else field for field in fields
        ]
    return table


def memory_bytes(memory: Any) -> int:
    """Bytes of all arrays in a named tuple."""
    if isinstance(memory, np.ndarray):
        return memory.nbytes
    return sum(map(memory_bytes, memory)) if isinstance(memory, tuple) else 0
