"""Queries of the beam search in .npz and .safetensors files, and their results in Parquet."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flashtrie.formats.errors import InputError, UsageError
from flashtrie.formats.outputs import Read, Replacement, check_output
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists
from flashtrie.formats.progress import Progress
from flashtrie.formats.search import DEFAULT_BEAM_WIDTH, SearchResult

Array = npt.NDArray[Any]

_WHAT = "the queries"
_PART_RESULTS = 1 << 20  # that are held at a time, some 50 MB
_DTYPES = {
    f"{letter}{8 * size}": np.dtype(f"{letter.lower()}{size}")
    for letter in "IUF"
    for size in (1, 2, 4, 8)
    if (letter, size) != ("F", 1)
} | {"BF16": np.dtype(np.uint16)}


@dataclass(frozen=True)
class Queries:
    """Proposals or logits of Q queries, in memory.

    Either tokens [Q, T, K] of any integer dtype and logprobs [Q, T, K], or logits [Q, T, W];
    with both, end_logprobs [Q, T + 1] or None.
    """

    tokens: Array | None = None
    logprobs: Array | None = None
    end_logprobs: Array | None = None
    logits: Array | None = None

    def __len__(self) -> int:
        """The number of queries, Q."""
        return len(self.arrays().popitem()[1])

    def arrays(self) -> dict[str, Array]:
        """What is there, by name."""
        names = ("tokens", "logprobs", "end_logprobs", "logits")
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    def part(self, start: int, stop: int) -> Queries:
        """The queries from `start` to `stop`, as views."""
        return Queries(**{name: array[start:stop] for name, array in self.arrays().items()})


def read_queries(path: str | os.PathLike[str]) -> Queries:
    """Read a whole file of queries; arrays of other names are left alone.

    Raises InputError for a file that cannot be read, or lacks an array; UsageError for another
    kind of file. Shapes and contents are checked by the search.
    """
    where = os.fspath(path)
    load = _from_npz if _kind(where) == ".npz" else _from_safetensors
    try:
        found = load(where)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise InputError("cannot read the queries", where, cause) from error
    if "logits" in found:
        if "tokens" in found or "logprobs" in found:
            raise InputError("there are both proposals and logits", where, hint="Keep one")
    elif missing := {"tokens", "logprobs"} - found.keys():
        raise InputError(
            f"there is no array {' and no '.join(sorted(missing))}",
            where,
            hint="A file of queries has tokens and logprobs [Q, T, K], or logits [Q, T, V]",
        )
    return Queries(**found)


def write_queries(path: str | os.PathLike[str], queries: Queries, *, force: bool = False) -> None:
    """Write .npz or .safetensors, as the name says. Raises OutputError, UsageError."""
    where = os.fspath(path)
    kind = _kind(where)
    with Replacement(where, _WHAT, force=force) as file:
        with file.errors(), open(file.temporary, "wb") as stream:
            if kind == ".npz":
                save: Any = np.savez  # to mypy any name could be allow_pickle
                save(stream, **queries.arrays())
            else:
                _to_safetensors(stream, queries.arrays())
        file.commit()


def check_queries_output(
    path: str | os.PathLike[str], *, force: bool = False, reads: Iterable[Read] = ()
) -> None:
    """Raise what `write_queries` would, as far as that can be told before. `reads`: the inputs."""
    _kind(os.fspath(path))
    check_output(path, _WHAT, force=force, reads=reads)


def search_queries(
    trie: Any, queries: Queries, *, progress: Progress | None = None, **options: Any
) -> Iterator[tuple[int, SearchResult]]:
    """Search in parts of bounded memory: the number of a part's first query, and its results.

    `trie` is a Trie, or what searches as one does. `options` are those of Trie.search: beam_width,
    top_k, length_penalty, threads.
    """
    beam_width = options.get("beam_width") or DEFAULT_BEAM_WIDTH
    size = max(64, _PART_RESULTS // beam_width)
    search: Any = trie.search if queries.logits is None else trie.search_logits
    for start in range(0, len(queries), size):
        yield start, search(**queries.part(start, start + size).arrays(), **options)
        if progress:
            progress("search", min(start + size, len(queries)), len(queries), "queries")


class ResultsOutput(ParquetOutput):
    """Results as Parquet, one row each: query, position, key_id, score, length, tokens[, value]."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        values: bool,
        force: bool = False,
        reads: Iterable[Read] = (),
    ) -> None:
        """Start the file. `values` says whether the artifact has them; `reads`: the inputs."""
        columns: dict[str, pa.DataType] = {
            "query": pa.int64(),
            "position": pa.int32(),
            "key_id": pa.int64(),
            "score": pa.float32(),
            "length": pa.int32(),
            "tokens": TOKENS,
        }
        if values:
            columns["value"] = pa.int64()
        super().__init__(path, columns, "the results", force=force, reads=reads)

    def add(self, first_query: int, result: SearchResult) -> None:
        """Append the results of the queries from `first_query` on."""
        counts = np.diff(result.offsets)
        position = np.arange(len(result.key_ids)) - np.repeat(result.offsets[:-1], counts)
        columns: list[Array | pa.Array[Any]] = [
            np.repeat(np.arange(first_query, first_query + len(counts)), counts),
            position.astype(np.int32),
            result.key_ids,
            result.scores,
            result.lengths,
            token_lists(result.tokens, result.token_offsets),
        ]
        if result.values is not None:
            columns.append(result.values)
        self.write(*columns)


def _kind(path: str) -> str:
    suffix = os.path.splitext(path)[1]
    if suffix not in (".npz", ".safetensors"):
        raise UsageError(
            f"cannot tell the kind of file from {suffix or 'a name without suffix'}",
            path,
            hint="Queries are in .npz or .safetensors",
        )
    return suffix


def _from_npz(path: str) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("not a .npz file")
        return {name: file[name] for name in _wanted(file.files)}


def _from_safetensors(path: str) -> dict[str, Array]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:  # proves the header
            names = _wanted(file.keys())
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
        return {name: _tensor(stream, 8 + size, name, header[name]) for name in names}


def _tensor(stream: BinaryIO, start: int, name: str, entry: dict[str, Any]) -> Array:
    kind = entry["dtype"]
    if kind not in _DTYPES:
        raise ValueError(f"{name} has dtype {kind}")
    first, end = entry["data_offsets"]
    stream.seek(start + first)
    array: Array = np.frombuffer(stream.read(end - first), _DTYPES[kind]).reshape(entry["shape"])
    # NumPy has no bfloat16: it is the upper half of a float32.
    return (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array


def _to_safetensors(stream: BinaryIO, arrays: dict[str, Array]) -> None:
    from safetensors.numpy import save

    stream.write(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def _wanted(names: Any) -> list[str]:
    return [name for name in ("tokens", "logprobs", "end_logprobs", "logits") if name in names]
