"""Parquet files that we write: keywords as list<uint32>, and the columns beside them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from flashtrie.formats.outputs import Read, Replacement

TOKENS: pa.DataType = pa.list_(pa.field("element", pa.uint32(), nullable=False))


def token_lists(
    tokens: npt.NDArray[np.uint32], offsets: npt.NDArray[np.integer[Any]]
) -> pa.Array[Any]:
    """Keywords as an Arrow column, without a copy of the tokens (fewer than 2^31)."""
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(tokens, pa.uint32()))
    return array.cast(TOKENS)


class ParquetOutput:
    """A Parquet file written in row groups, and seen under its name once `commit` was called.

    Raises OutputError, as `check_output` does, before any work; ResourceError where the disk is
    full. Row groups are compressed with zstd.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Mapping[str, pa.DataType],
        what: str,
        *,
        nullable: Collection[str] = (),
        force: bool = False,
        reads: Iterable[Read] = (),
    ) -> None:
        """Start the file; `what` names it in messages, `reads` are those it is made from."""
        self.schema = pa.schema(
            [pa.field(name, kind, nullable=name in nullable) for name, kind in columns.items()]
        )
        self.rows = 0
        self._file = Replacement(path, what, force=force, reads=reads)
        try:
            with self._file.errors():
                self._writer = pq.ParquetWriter(
                    self._file.temporary,
                    self.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=False,
                )
        except BaseException:
            self._file.abort()
            raise

    def write(self, *columns: pa.Array[Any] | npt.NDArray[Any]) -> None:
        """Append a row group: one array for each column."""
        arrays = [
            pa.array(column, field.type) if isinstance(column, np.ndarray) else column
            for column, field in zip(columns, self.schema, strict=True)
        ]
        batch = pa.record_batch(arrays, schema=self.schema)
        with self._file.errors():
            self._writer.write_batch(batch)
        self.rows += len(batch)

    def commit(self) -> None:
        """Write the footer, sync and rename."""
        with self._file.errors():
            self._writer.close()
        self._file.commit()

    def abort(self) -> None:
        """Remove what was written. Does nothing after `commit`."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._writer.is_open = False  # else it tries again, and complains, when it is collected
        self._file.abort()

    def __enter__(self) -> Self:
        """Commit at the end of a `with` block, or abort where it raised."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or abort."""
        if kind is None:
            try:
                self.commit()
            finally:
                self.abort()
        else:
            self.abort()
