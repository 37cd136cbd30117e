"""The keywords of a trie back out, in key id order, in blocks of constant memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flashtrie.cpu.trie import Trie
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists
from flashtrie.formats.progress import Progress

_BLOCK = 1 << 16  # keywords


class Block(NamedTuple):
    """Keywords with key ids from `first` on: flat tokens, their offsets, and values if any."""

    first: int
    tokens: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        """The number of keywords."""
        return len(self.offsets) - 1

    @property
    def key_ids(self) -> npt.NDArray[np.int64]:
        """Their key ids."""
        return np.arange(self.first, self.first + len(self), dtype=np.int64)


def blocks(trie: Trie, progress: Progress | None = None, phase: str = "dump") -> Iterator[Block]:
    """All keywords of a trie, a block at a time."""
    for first in range(0, len(trie), _BLOCK):
        stop = min(first + _BLOCK, len(trie))
        tokens, offsets = trie.keywords(first, stop)
        values = trie.values(np.arange(first, stop, dtype=np.int64))
        yield Block(first, tokens, offsets, values)
        if progress:
            progress(phase, stop, len(trie), "keywords")


def dump(
    trie: Trie,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write Parquet with key_id, tokens and, where there are any, value. Raises OutputError."""
    columns = {"key_id": pa.int64(), "tokens": TOKENS}
    if trie.artifact.header.values:
        columns["value"] = pa.int64()
    reads = [trie.artifact.descriptor]
    with ParquetOutput(output, columns, "the keywords", force=force, reads=reads) as file:
        for block in blocks(trie, progress):
            values = [] if block.values is None else [block.values]
            file.write(block.key_ids, token_lists(block.tokens, block.offsets), *values)
