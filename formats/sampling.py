"""What a selection of tokens is given beside logits: checked the same way for every engine.

A number for all rows is a Python number, and one for each row an array [B] of any library.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from flashtrie.formats.dlpack import device_of
from flashtrie.formats.errors import InputError, UsageError


def whole(value: Any, name: str) -> Any:
    """An int for all rows, or an array as it is. Raises UsageError for what is not whole."""
    value = _one_or_array(value)
    if hasattr(value, "ndim"):
        return value
    try:
        return operator.index(value)
    except TypeError:
        cause = f"got {value!r}"
        raise UsageError(f"{name} is a whole number, or one a row", cause=cause) from None


def modulo(value: Any) -> Any:
    """An int modulo 2^64, as the 64 bits of an int64 have it."""
    return (value + 2**63) % 2**64 - 2**63 if isinstance(value, int) else value


def number(value: Any, name: str) -> Any:
    """A float for all rows, or an array as it is. Raises UsageError, as check_numbers does."""
    value = _one_or_array(value)
    if hasattr(value, "ndim"):
        return value
    try:
        found = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise UsageError(f"{name} is a number, or one a row", cause=f"got {value!r}")
    check_numbers(np.array([found]), name)
    return found


def check_numbers(values: np.ndarray[Any, Any], name: str) -> None:
    """No NaN is among `top_p`, nor that or less than 0 in `temperature`. Raises UsageError."""
    wrong = ~(values >= 0) if name == "temperature" else np.isnan(values)
    if wrong.any():
        must = "at least 0" if name == "temperature" else "a number"
        raise UsageError(f"{name} is {must}", cause=f"got {values[wrong][0]}")


def broadcast(library: Any, array: Any, dtype: Any, rows: int, name: str) -> Any:
    """An array of NumPy or CuPy as int64 or float64 [rows]. Raises UsageError.

    NumPy's are checked as check_numbers does.
    """
    if dtype == np.int64 and array.dtype.kind not in "iub":
        raise UsageError(f"{name} is a whole number, or one a row", cause=f"got {array.dtype}")
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise UsageError(f"{name} is a number, or one a row", cause=f"got {array.dtype}")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != rows):
        raise UsageError(
            f"{name} is one number, or one for each of {rows} rows",
            cause=f"got shape {tuple(array.shape)}",
        )
    result = library.ascontiguousarray(library.broadcast_to(array.astype(dtype), (rows,)))
    if library is np and dtype == np.float64:
        check_numbers(result, name)
    return result


def check_output(logits: Any, out: Any) -> None:
    """A mask is written as the logits are read: of another size it would end elsewhere.

    Raises InputError.
    """
    expected, got = (
        f"{str(array.dtype).removeprefix('torch.')} {list(array.shape)} "
        f"on {'the host' if device_of(array) is None else f'CUDA device {device_of(array)}'}"
        for array in (logits, out)
    )
    if got != expected:
        raise InputError(
            "the output has the dtype and shape of the logits, and lies where they do",
            cause=f"got {got} for {expected}",
        )


def _one_or_array(value: Any) -> Any:
    """A number as Python has it; what is one for each row as an array."""
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    is_one = isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0
    return value.item() if is_one else value
