"""The input of a build: Parquet files that were checked by their footers, read in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from flashtrie.builder import columns
from flashtrie.builder.batches import Batch, Place, decode, joined, spans, without_views
from flashtrie.builder.columns import Columns
from flashtrie.builder.inputs import Fault, InputFile, faults_error, resolve, unchanged
from flashtrie.builder.tokenizer import TextEncoder
from flashtrie.formats.errors import InputError, UsageError

_FOOTER_THREADS = 16  # they wait for a disk or a server
# Pages are read through a window of this size, so that a row group of gigabytes never lies whole
# in memory. A remote window is a request, and requests take tens of milliseconds.
_WINDOW, _REMOTE_WINDOW = 1 << 20, 8 << 20
# What is read at a time stays below these by the average of a row group, so that 32-bit offsets of
# a list array never overflow. Batches stay below the tokens whatever rows come together: 4 MiB of
# them also stay in cache.
_BATCH_TOKENS, _BATCH_TEXT_BYTES = 1 << 20, 16 << 20
# Of text: pages with a dictionary can stand for many times their bytes, and the tokenizer takes
# some 20 ms for so many rows, so that a build that is stopped ends soon.
_TEXT_ROWS = 1 << 10
# Footers are kept from open to read up to this many encoded bytes in all, else read again: those
# of thousands of files with hundreds of columns would fill the memory.
_FOOTERS_KEPT = 16 << 20


class Task(NamedTuple):
    """A row group: what one thread reads at a time. `first_row` and `rows` count in the file.

    `tokens` is the most that it can hold, by the footer; for text a guess, too low where a page has
    a dictionary. `bytes` is the size of the column of keywords, encoded but not compressed.
    """

    file: int
    row_group: int
    first_row: int
    rows: int
    tokens: int
    bytes: int


class _Footer(NamedTuple):
    file: str
    metadata: pq.FileMetaData
    schema: pa.Schema


@dataclass(frozen=True)
class Source:
    """Checked input files and how to read them. Any number of threads may read at once.

    `rows` and `tokens` are the totals of the tasks, so of what may be skipped too; `bytes` is the
    size of the files.
    """

    files: list[InputFile]
    tasks: list[Task]
    columns: Columns
    rows: int
    tokens: int
    bytes: int
    _footers: list[pq.FileMetaData | None]
    _encoder: TextEncoder | None
    _skip_nulls: bool
    _skip_empty: bool

    @classmethod
    def open(
        cls,
        inputs: Sequence[str | os.PathLike[str]],
        column: str | None = None,
        values: str | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        nulls: str = "error",
        empty: str = "error",
    ) -> Source:
        """Find the files and check every footer. A small read per file, in parallel; no data.

        Raises InputError that names every faulty file: missing, empty, cut, not Parquet, without
        the column or with another type; also where no column, or more than one, fits. Raises
        UsageError for a tokenizer that cannot be loaded.
        """
        for name, choice in (("nulls", nulls), ("empty", empty)):
            if choice not in ("error", "skip"):
                raise UsageError(f"--{name} is error or skip, not {choice!r}")
        if isinstance(inputs, str | bytes | os.PathLike):
            raise UsageError("inputs are a list of names", repr(inputs), "this is one name")
        if not inputs:
            raise UsageError("no input was given")
        encoder = None if tokenizer is None else TextEncoder(tokenizer)
        files, faults = resolve(inputs)
        footers: list[_Footer] = []
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            for footer in pool.map(_read_footer, files):
                if isinstance(footer, Fault):
                    faults.append(footer)
                else:
                    footers.append(footer)
        schemas = [(footer.file, footer.schema) for footer in footers]
        chosen, more = _check_columns(schemas, column, values, text=encoder is not None)
        faults += more
        if faults or chosen is None:
            raise faults_error(faults)
        tasks: list[Task] = []
        kept: list[pq.FileMetaData | None] = []
        size = 0
        for index, footer in enumerate(footers):
            tasks += _tasks(index, footer, chosen)
            size += footer.metadata.serialized_size
            kept.append(footer.metadata if size <= _FOOTERS_KEPT else None)
        return cls(
            files,
            tasks,
            chosen,
            sum(task.rows for task in tasks),
            sum(task.tokens for task in tasks),
            sum(file.stamp.size for file in files),
            kept,
            encoder,
            nulls == "skip",
            empty == "skip",
        )

    @property
    def reads(self) -> list[str]:
        """The paths of all local files that are read, the tokenizer's too."""
        tokenizer = [] if self._encoder is None else [self._encoder.path]
        return [file.path for file in self.files if not file.remote] + tokenizer

    @property
    def column(self) -> str:
        """The column of the keywords."""
        return self.columns.keywords

    @property
    def has_values(self) -> bool:
        """Whether batches have values."""
        return self.columns.values is not None

    def read(
        self, task: Task, batch_rows: int = 65536, each: Callable[[Batch], None] | None = None
    ) -> Iterator[Batch]:
        """Batches of a row group, in order, each of at most `batch_rows` rows and 2^20 tokens.

        Batches of text are made of small ones; `each` sees them as they come, and may end it all.

        Memory is that of a batch and of the pages it comes from. Decompression, decoding and
        checks run without the GIL. Raises InputError that names file, row group and row.
        """
        file = self.files[task.file]
        try:
            batches = self._batches(file, task, batch_rows, each or (lambda batch: None))
            yield from joined(batches, batch_rows, _BATCH_TOKENS)
        except Exception as error:
            # A file that was replaced and is read by its old footer can fail in any way.
            if not unchanged([file])[0]:
                raise _changed([file]) from error
            if isinstance(error, (pa.ArrowException, OSError)) and not isinstance(
                error, MemoryError
            ):
                where = f"{file.name}, row group {task.row_group}"
                raise InputError("cannot be read", where, _plain(error)) from error
            raise

    def check_unchanged(self) -> None:
        """Raise InputError that names the files replaced since `open`. A stat or listing each."""
        same = unchanged(self.files)
        changed = [file for file, kept in zip(self.files, same, strict=True) if not kept]
        if changed:
            raise _changed(changed)

    def _batches(
        self, file: InputFile, task: Task, batch_rows: int, each: Callable[[Batch], None]
    ) -> Iterator[Batch]:
        wanted = [name for name in self.columns[:2] if name is not None]
        rows = max(1, min(batch_rows, _rows_per_read(task, self.columns.text)))
        place = Place(file.name, task.row_group, task.first_row)
        empty, first_empty = 0, -1
        with _parquet(file, self._footers[task.file]) as parquet:
            for records in parquet.iter_batches(
                rows, row_groups=[task.row_group], columns=wanted, use_threads=False
            ):
                keywords = records.column(self.columns.keywords)
                if self._encoder is not None:
                    keywords = self._encoder.encode(keywords, place)
                keywords = without_views(keywords)
                values = self.columns.values
                numbers = None if values is None else records.column(values)
                for start, stop in spans(keywords, _BATCH_TOKENS):
                    batch = decode(
                        keywords[start:stop],
                        None if numbers is None else numbers[start:stop],
                        place._replace(first_row=place.first_row + start),
                        skip_nulls=self._skip_nulls,
                    )
                    each(batch)
                    if batch.skipped_empty and not self._skip_empty:
                        empty += batch.skipped_empty
                        first_empty = batch.first_empty if first_empty < 0 else first_empty
                    if not empty:  # else only the count is wanted
                        yield batch
                place = place._replace(first_row=place.first_row + len(keywords))
        if empty:
            raise InputError(
                f"{empty} keyword{'s have' if empty > 1 else ' has'} no tokens",
                f"{file.name}, row group {task.row_group}, row {first_empty}",
                hint="--empty skip leaves such rows out",
            )


def _parquet(file: InputFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(
        file.open(),
        metadata=metadata,
        buffer_size=_REMOTE_WINDOW if file.remote else _WINDOW,
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _read_footer(file: InputFile) -> _Footer | Fault:
    try:
        with _parquet(file) as parquet:
            return _Footer(file.name, parquet.metadata, parquet.schema_arrow)
    except UnicodeDecodeError:  # of names in the footer, which the readers do not look at
        return Fault(file.name, "the name of a column is not UTF-8")
    except (pa.ArrowException, OSError) as error:
        return Fault(file.name, _diagnosis(file) or _plain(error))


def _diagnosis(file: InputFile) -> str | None:
    """Why a file has no footer, by its size and its first and last four bytes."""
    if not file.stamp.size:
        return "the file is empty"
    try:
        with file.open() as stream:
            first = stream.read(4)
            stream.seek(max(0, file.stamp.size - 4))
            last = stream.read(4)
    except (pa.ArrowException, OSError):
        return None
    if first not in (b"PAR1", b"PARE"):
        return "not a Parquet file"
    return None if last == first else "the file was cut: its end, with the footer, is missing"


def _check_columns(
    schemas: list[tuple[str, pa.Schema]], column: str | None, values: str | None, *, text: bool
) -> tuple[Columns | None, list[Fault]]:
    if column is None:
        column, faults = columns.choose(schemas, text=text)
        if faults:
            return None, faults
    if column is None:
        return None, [Fault(f, columns.no_candidate(schema, text=text)) for f, schema in schemas]
    chosen = Columns(column, values, text)
    return chosen, [Fault(f, r) for f, schema in schemas for r in columns.check(schema, chosen)]


def _tasks(index: int, footer: _Footer, chosen: Columns) -> Iterator[Task]:
    leaf = columns.leaf(footer.schema, chosen.keywords)
    first_row = 0
    for number in range(footer.metadata.num_row_groups):
        group = footer.metadata.row_group(number)
        chunk = group.column(leaf)
        if group.num_rows:
            size = chunk.total_uncompressed_size
            tokens = max(4 * group.num_rows, size // 2) if chosen.text else chunk.num_values
            yield Task(index, number, first_row, group.num_rows, tokens, size)
        first_row += group.num_rows


def _rows_per_read(task: Task, text: bool) -> int:
    if text:
        return min(_TEXT_ROWS, _BATCH_TEXT_BYTES * task.rows // max(task.bytes, 1))
    return _BATCH_TOKENS * task.rows // max(task.tokens, 1)


def _changed(files: Sequence[InputFile]) -> InputError:
    faults = [Fault(file.name, "the file changed while it was read") for file in files]
    return faults_error(faults, "Run again when nothing writes to the input")


def _plain(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).strip()
