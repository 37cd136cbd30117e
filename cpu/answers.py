"""Lookups of whole columns of keywords, a batch at a time, and their answers in Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flashtrie.cpu.trie import Trie
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.outputs import Read
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists


class Answer(NamedTuple):
    """Keywords as flat tokens and offsets; key ids, -1 where absent; values if there are any.

    The value of an absent keyword is 0.
    """

    tokens: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    key_ids: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64] | None

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """Which keywords are there."""
        return self.key_ids >= 0

    def rows(self) -> Iterator[tuple[list[int], int | None, int | None]]:
        """Tokens, key id and value of each keyword; None for what is not there."""
        tokens, offsets = self.tokens.tolist(), self.offsets.tolist()
        values = [None] * len(self.key_ids) if self.values is None else self.values.tolist()
        for i, key_id in enumerate(self.key_ids.tolist()):
            keyword = tokens[offsets[i] : offsets[i + 1]]
            yield (keyword, key_id, values[i]) if key_id >= 0 else (keyword, None, None)


def answers(
    trie: Trie,
    keywords: Iterable[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]],
    threads: int | None = None,
) -> Iterator[Answer]:
    """Look up batches of keywords, each flat tokens and offsets, with all cores by default."""
    for tokens, offsets in keywords:
        key_ids = trie.lookup_flat(tokens, offsets, threads or usable_cores())
        values = trie.values(np.maximum(key_ids, 0))
        yield Answer(
            tokens, offsets, key_ids, None if values is None else np.where(key_ids < 0, 0, values)
        )


class AnswersOutput(ParquetOutput):
    """Answers as Parquet: tokens, key_id (null when absent) and, where there are any, value."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        values: bool,
        force: bool = False,
        reads: Iterable[Read] = (),
    ) -> None:
        """Start the file. `values` says whether the artifact has them; `reads`: the inputs."""
        columns = {"tokens": TOKENS, "key_id": pa.int64()}
        if values:
            columns["value"] = pa.int64()
        nullable = ("key_id", "value")
        super().__init__(path, columns, "the answers", nullable=nullable, force=force, reads=reads)

    def add(self, answer: Answer) -> None:
        """Append a row for each keyword."""
        absent = ~answer.found
        columns = [pa.array(answer.key_ids, pa.int64(), mask=absent)]
        if answer.values is not None:
            columns.append(pa.array(answer.values, pa.int64(), mask=absent))
        self.write(token_lists(answer.tokens, answer.offsets), *columns)
