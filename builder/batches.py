"""Arrow arrays of a batch to NumPy: flat tokens, offsets and values, every rule checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from flashtrie.formats.errors import InputError
from flashtrie.formats.schema import MAX_LENGTH, MAX_TOKEN

# An Arrow array of whatever type: the stubs give the general one no offsets and no values.
Array: TypeAlias = Any

_INT64_MAX = 2**63 - 1
_SKIP = "--nulls skip leaves such rows out"


class Place(NamedTuple):
    """Where rows come from, for messages: `first_row` is the first's number in the file, from 0."""

    file: str
    row_group: int
    first_row: int

    def error(self, row: int, what: str, hint: str = "") -> InputError:
        """What is wrong with a row of the batch."""
        where = f"{self.file}, row group {self.row_group}, row {self.first_row + row}"
        return InputError(what, where, hint=hint)


@dataclass(slots=True)
class Batch:
    """Keywords of consecutive rows of a row group, without the rows that were skipped.

    `tokens` uint32 [n]; `offsets` int64 [rows + 1], from 0 to n; `values` int64 [rows] or None.
    Arrays may be read-only views of Arrow memory. Every keyword has 1 to MAX_LENGTH tokens of at
    most MAX_TOKEN. `first_row` counts in the file, skipped rows included; `first_empty` is the
    first empty row of the batch, counted in the same way, or -1.
    """

    tokens: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64] | None
    skipped_nulls: int
    skipped_empty: int
    file: str
    first_row: int
    first_empty: int

    def __len__(self) -> int:
        """Rows that were kept."""
        return len(self.offsets) - 1


def joined(batches: Iterable[Batch], most_rows: int, most_tokens: int) -> Iterator[Batch]:
    """Batches that follow one another made one, up to so many rows and tokens.

    One of half as many stays as it is.
    """
    waiting: list[Batch] = []
    rows = tokens = 0
    for batch in batches:
        if waiting and (rows + len(batch) > most_rows or tokens + len(batch.tokens) > most_tokens):
            yield _join(waiting)
            waiting, rows, tokens = [], 0, 0
        waiting.append(batch)
        rows += len(batch)
        tokens += len(batch.tokens)
        if 2 * rows >= most_rows or 2 * tokens >= most_tokens:
            yield _join(waiting)
            waiting, rows, tokens = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
    values = [batch.values for batch in batches if batch.values is not None]
    return Batch(
        np.concatenate([batch.tokens for batch in batches]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate(values) if values else None,
        sum(batch.skipped_nulls for batch in batches),
        sum(batch.skipped_empty for batch in batches),
        batches[0].file,
        batches[0].first_row,
        max(batches, key=lambda batch: batch.skipped_empty > 0).first_empty,
    )


def decode(keywords: Array, values: Array | None, place: Place, *, skip_nulls: bool) -> Batch:
    """Check and convert one batch: some passes of NumPy over it, no copy of uint32 tokens.

    `keywords` is any list array of integers, sliced or not; a slice's offset and the values
    hidden under null rows are heeded. Null rows and null values are errors unless `skip_nulls`;
    empty rows are left out and counted. A null token, more than MAX_LENGTH tokens, an id outside
    0..MAX_TOKEN and a value outside int64 are errors that name the row.
    """
    tokens, offsets, lengths, null_tokens = _flatten(keywords)
    nulls = _nulls(keywords)
    if nulls is not None and not skip_nulls:
        raise place.error(int(nulls.argmax()), "the keyword is null", _SKIP)
    numbers = None
    if values is not None:
        numbers, null_values = _integers(values)
        if null_values is not None:
            if not skip_nulls:
                raise place.error(int(null_values.argmax()), "the value is null", _SKIP)
            nulls = null_values if nulls is None else nulls | null_values

    rows = None  # of the batch, that are kept; None: all
    skipped_nulls = skipped_empty = 0
    first_empty = -1
    if nulls is not None or (len(lengths) and lengths.min() == 0):
        empty = lengths == 0
        if nulls is not None:
            empty &= ~nulls
            skipped_nulls = int(np.count_nonzero(nulls))
        skipped_empty = int(np.count_nonzero(empty))
        if skipped_empty:
            first_empty = place.first_row + int(empty.argmax())
        keep = ~empty if nulls is None else ~(empty | nulls)
        if lengths[~keep].any():
            kept_tokens = np.repeat(keep, lengths)
            tokens = tokens[kept_tokens]
            null_tokens = None if null_tokens is None else null_tokens[kept_tokens]
        rows = np.flatnonzero(keep)
        lengths = lengths[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        numbers = None if numbers is None else numbers[rows]

    _check(place, rows, tokens, null_tokens, offsets, lengths, numbers)
    return Batch(
        # int32 that passed has the bits of uint32.
        tokens.view(np.uint32)
        if tokens.dtype == np.int32
        else tokens.astype(np.uint32, copy=False),
        offsets,
        None if numbers is None else numbers.astype(np.int64, copy=False),
        skipped_nulls,
        skipped_empty,
        place.file,
        place.first_row,
        first_empty,
    )


def spans(lists: Array, most_tokens: int) -> Iterator[tuple[int, int]]:
    """Rows (start, stop) of a list array, one part after another, of at most so many tokens.

    A row of more is a part of its own. Null rows count with what is hidden under them.
    """
    offsets = _offsets(lists)
    start, rows = 0, len(lists)
    while start < rows:
        end = int(offsets[start]) + most_tokens
        fits = rows if offsets[-1] <= end else int(np.searchsorted(offsets, end, "right")) - 1
        stop = max(start + 1, fits)
        yield start, stop
        start = stop


def without_views(lists: Array) -> Array:
    """The same with offsets: the rows of a list view may stand in any order."""
    kind = lists.type
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return lists.cast(pa.large_list(kind.value_type))
    return lists


def _offsets(lists: Array) -> npt.NDArray[Any]:
    """Where each row begins among the stored values, and the end, in the stored dtype."""
    offsets: npt.NDArray[Any]
    if types.is_fixed_size_list(lists.type):
        offsets = np.arange(len(lists) + 1, dtype=np.int64) + lists.offset
        offsets *= lists.type.list_size
    else:
        offsets = lists.offsets.to_numpy()
    return offsets


def _check(
    place: Place,
    rows: npt.NDArray[np.int64] | None,
    tokens: npt.NDArray[Any],
    null_tokens: npt.NDArray[np.bool_] | None,
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[Any],
    values: npt.NDArray[Any] | None,
) -> None:
    """Raise for the first kept row with a null token, too many, an id or value out of range."""

    def error(kept: int, what: str) -> InputError:
        return place.error(kept if rows is None else int(rows[kept]), what)

    def row_of(token: int) -> int:
        return int(np.searchsorted(offsets, token, "right")) - 1

    if null_tokens is not None and null_tokens.any():
        raise error(row_of(int(null_tokens.argmax())), "a token of the keyword is null")
    if len(lengths) and lengths.max() > MAX_LENGTH:
        row = int((lengths > MAX_LENGTH).argmax())
        raise error(row, f"the keyword has {lengths[row]} tokens, and {MAX_LENGTH} is the most")
    token = _outside(tokens)
    if token is not None:
        raise error(row_of(token), f"token id {tokens[token]} is outside 0..{MAX_TOKEN}")
    if values is not None and values.dtype == np.uint64:
        above = values > _INT64_MAX
        if above.any():
            row = int(above.argmax())
            raise error(row, f"value {values[row]} is above {_INT64_MAX}")


def _flatten(
    lists: Array,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """(values, offsets, lengths, null values or None) of exactly the rows of a list array."""
    lists = without_views(lists)
    stored = _offsets(lists)
    # Lengths in the stored dtype, often int32: half the memory to go through.
    lengths = stored[1:] - stored[:-1]
    offsets = stored.astype(np.int64)
    if start := int(offsets[0]):
        offsets -= start
    values, nulls = _integers(lists.values.slice(start, int(offsets[-1])))
    return values, offsets, lengths, nulls


def _integers(array: Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """(numbers, which are null or None); what stands in a null's place is any number."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_null(array.type):
        return np.zeros(len(array), np.int64), np.ones(len(array), np.bool_)
    dtype = np.dtype(str(array.type))  # to_pandas_dtype() imports pandas in some versions
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(0, dtype), None
    numbers = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return numbers, _nulls(array)


def _nulls(array: Array) -> npt.NDArray[np.bool_] | None:
    if not array.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _outside(tokens: npt.NDArray[Any]) -> int | None:
    """The first token that is no id, or None. Looks at minimum and maximum first."""
    limits = np.iinfo(tokens.dtype)
    if not len(tokens):
        return None
    low = limits.min < 0 and tokens.min() < 0
    if not low and (limits.max <= MAX_TOKEN or tokens.max() <= MAX_TOKEN):
        return None
    bad = tokens > MAX_TOKEN if limits.max > MAX_TOKEN else np.zeros(len(tokens), np.bool_)
    return int((bad | (tokens < 0)).argmax())
