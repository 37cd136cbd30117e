"""What changed between two artifacts: keywords added and removed, and values changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flashtrie.cpu.dump import Block, blocks
from flashtrie.cpu.trie import Trie
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists
from flashtrie.formats.progress import Progress

_COLUMNS = {
    "change": pa.string(),
    "tokens": TOKENS,
    "old_value": pa.int64(),
    "new_value": pa.int64(),
}


@dataclass(frozen=True)
class DiffReport:
    """Keywords of both artifacts, and how many were added, removed, or have another value."""

    old_keywords: int
    new_keywords: int
    added: int
    removed: int
    changed: int


def diff(
    old: Trie,
    new: Trie,
    output: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> DiffReport:
    """Compare by lookups of all keywords of each in the other, in constant memory.

    With `output`, Parquet with a row for each difference: change ("added", "removed" or
    "changed"), tokens, old_value and new_value, null where there is none. In an artifact without
    values, all values are null. Raises OutputError.
    """
    counts = {"added": 0, "removed": 0, "changed": 0}
    opened = output and ParquetOutput(
        output,
        _COLUMNS,
        "the differences",
        nullable=("old_value", "new_value"),
        force=force,
        reads=[trie.artifact.descriptor for trie in (old, new)],
    )
    with opened or nullcontext() as file:
        for found in _differences(old, new, progress):
            counts[found.change] += len(found.values[0])
            if file:
                lists = token_lists(found.tokens, found.offsets)
                change = pa.array([found.change] * len(lists))
                file.write(change, lists, *found.values)
    return DiffReport(len(old), len(new), **counts)


@dataclass(frozen=True)
class _Differences:
    change: str
    tokens: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    values: tuple[pa.Array[Any], pa.Array[Any]]


def _differences(old: Trie, new: Trie, progress: Progress | None) -> Iterator[_Differences]:
    threads = usable_cores()
    for block in blocks(old, progress, "removed and changed"):
        key_ids = new.lookup_flat(block.tokens, block.offsets, threads)
        absent = key_ids < 0
        if absent.any():
            yield _chosen("removed", block, absent, block.values, None)
        new_values = new.values(np.maximum(key_ids, 0))
        if block.values is None and new_values is None:
            continue
        if block.values is None or new_values is None:
            changed = ~absent
        else:
            changed = ~absent & (block.values != new_values)
        if changed.any():
            yield _chosen("changed", block, changed, block.values, new_values)
    for block in blocks(new, progress, "added"):
        absent = old.lookup_flat(block.tokens, block.offsets, threads) < 0
        if absent.any():
            yield _chosen("added", block, absent, None, block.values)


def _chosen(
    change: str,
    block: Block,
    chosen: npt.NDArray[np.bool_],
    old_values: npt.NDArray[np.int64] | None,
    new_values: npt.NDArray[np.int64] | None,
) -> _Differences:
    lengths = np.diff(block.offsets)
    tokens = block.tokens[np.repeat(chosen, lengths)]
    offsets = np.concatenate([[0], np.cumsum(lengths[chosen])])
    count = len(offsets) - 1
    values = tuple(
        pa.nulls(count, pa.int64()) if column is None else pa.array(column[chosen], pa.int64())
        for column in (old_values, new_values)
    )
    return _Differences(change, tokens, offsets, (values[0], values[1]))
