"""Logits in .npy, .npz and .safetensors files, and what a selection keeps in the latter two."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flashtrie.formats.errors import InputError, UsageError
from flashtrie.formats.outputs import Read, Replacement, check_output

Array = npt.NDArray[Any]

_WHAT = "the selection"
_INPUTS = (".npy", ".npz", ".safetensors")
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
}


def read_logits(path: str | os.PathLike[str]) -> tuple[Array, bool]:
    """Logits [B, V] as float32 or float16, and whether the file has them as bfloat16.

    bfloat16 comes as float32, which is exact. Raises InputError for a file that cannot be read,
    or holds no such array; UsageError for another kind of file.
    """
    where = os.fspath(path)
    kind = _kind(where, _INPUTS)
    try:
        logits, bfloat16 = _load(where, kind)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise InputError("cannot read the logits", where, cause) from error
    if logits.ndim != 2 or logits.dtype not in (np.float32, np.float16) or not logits.size:
        raise InputError(
            "logits are an array [rows, vocabulary] of float32, float16 or bfloat16",
            where,
            f"got {logits.dtype} of shape {logits.shape}",
        )
    return logits, bfloat16


def check_selection_output(
    path: str | os.PathLike[str], *, force: bool = False, reads: Iterable[Read] = ()
) -> None:
    """Raise what `write_selection` would, as far as that can be told before.

    `reads` are the files of the logits.
    """
    _kind(os.fspath(path), _INPUTS[1:])
    check_output(path, _WHAT, force=force, reads=reads)


def write_selection(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    *,
    bfloat16: bool = False,
    force: bool = False,
) -> None:
    """Write .npz or .safetensors, as the name says; there `values` as bfloat16 if so asked.

    Raises OutputError, UsageError.
    """
    where = os.fspath(path)
    kind = _kind(where, _INPUTS[1:])
    with Replacement(where, _WHAT, force=force) as file:
        with file.errors(), open(file.temporary, "wb") as stream:
            if kind == ".npz":
                save: Any = np.savez  # to mypy any name could be allow_pickle
                save(stream, **arrays)
            else:
                _to_safetensors(stream, arrays, bfloat16)
        file.commit()


def _kind(path: str, kinds: tuple[str, ...]) -> str:
    suffix = os.path.splitext(path)[1]
    if suffix not in kinds:
        raise UsageError(
            f"cannot tell the kind of file from {suffix or 'a name without suffix'}",
            path,
            hint=f"It ends in {', '.join(kinds[:-1])} or {kinds[-1]}",
        )
    return suffix


def _load(path: str, kind: str) -> tuple[Array, bool]:
    if kind == ".safetensors":
        return _from_safetensors(path)
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return found, False
    with found as file:
        return np.asarray(file["logits"]), False


def _from_safetensors(path: str) -> tuple[Array, bool]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # proves the header
            pass
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(size))["logits"]
        dtype = entry["dtype"]
        if dtype not in _DTYPES:
            raise ValueError(f"logits has dtype {dtype}")
        first, end = entry["data_offsets"]
        stream.seek(8 + size + first)
        array: Array = np.frombuffer(stream.read(end - first), _DTYPES[dtype])
    array = array.reshape(entry["shape"])
    if dtype != "BF16":
        return array, False
    return (array.astype(np.uint32) << 16).view(np.float32), True


def _to_safetensors(stream: BinaryIO, arrays: dict[str, Array], bfloat16: bool) -> None:
    header: dict[str, Any] = {}
    payload: list[bytes] = []
    end = 0
    for name, array in arrays.items():
        dtype = f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"
        if bfloat16 and name == "values":
            array, dtype = (array.view(np.uint32) >> 16).astype(np.uint16), "BF16"
        payload.append(array.tobytes())
        offsets = [end, end + len(payload[-1])]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        end = offsets[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for part in payload:
        stream.write(part)
