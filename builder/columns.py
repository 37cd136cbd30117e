"""Which column holds the keywords, and whether a file's schema has it, by the footer alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types

from flashtrie.builder.inputs import Fault

_NAMES_SHOWN = 10


class Columns(NamedTuple):
    """The columns to read: keywords, values or None, and whether keywords are text."""

    keywords: str
    values: str | None
    text: bool


def choose(
    schemas: Iterable[tuple[str, pa.Schema]], *, text: bool
) -> tuple[str | None, list[Fault]]:
    """The column that holds the keywords where its name was not given: (name, faults).

    Columns of lists of integers are candidates, or with `text` columns of strings; nested and
    Hive partition columns are not. Where files have one candidate each and names differ, it is
    the commonest; the files without it are for `check`. A file with two is a fault.
    """
    counts: Counter[str] = Counter()
    for file, schema in schemas:
        names = _candidates(schema, text)
        if len(names) > 1:
            kind = "text" if text else "lists of integers"
            return None, [Fault(file, f"columns {_names(names)} are {kind}: choose with --column")]
        counts.update(names)
    return max(counts, key=lambda name: counts[name], default=None), []


def no_candidate(schema: pa.Schema, *, text: bool) -> str:
    """Why no column of a file can hold keywords."""
    if text:
        return f"no column is text for the tokenizer (there is {_fields(schema)})"
    strings = _candidates(schema, text=True)
    if strings:
        return (
            f"no column is a list of integers; {_names(strings)} is text, "
            "which needs --tokenizer FILE"
        )
    return f"no column is a list of integers (there is {_fields(schema)})"


def check(schema: pa.Schema, columns: Columns) -> list[str]:
    """What is wrong with a file's schema; nothing, where the columns can be read."""
    reasons = []
    found = _field(schema, columns.keywords)
    if isinstance(found, str):
        reasons.append(found)
    elif columns.text and not _is_text(found.type):
        hint = ": leave out --tokenizer" if _is_tokens(found.type) else ""
        reasons.append(f"column {columns.keywords!r} is {found.type}, not text{hint}")
    elif not columns.text and not _is_tokens(found.type):
        hint = ": text needs --tokenizer FILE" if _is_text(found.type) else ""
        reasons.append(f"column {columns.keywords!r} is {found.type}, not a list of integers{hint}")
    if columns.values is not None:
        found = _field(schema, columns.values)
        if isinstance(found, str):
            reasons.append(found)
        elif not _is_integer(found.type):
            reasons.append(f"column {columns.values!r} is {found.type}, not an integer")
    return reasons


def leaf(schema: pa.Schema, name: str) -> int:
    """The Parquet column that holds the (only) leaf of a top-level column."""
    index = schema.get_field_index(name)
    return sum(_leaves(schema.field(i).type) for i in range(index))


def _leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) or 1


def _field(schema: pa.Schema, name: str) -> pa.Field[Any] | str:
    """The column of exactly this name, or what is wrong: dots, blanks and case are part of it."""
    found = schema.get_all_field_indices(name)
    if not found:
        return f"no column {name!r} (there is {_fields(schema)})"
    if len(found) > 1:
        return f"{len(found)} columns are named {name!r}"
    return schema.field(found[0])


def _candidates(schema: pa.Schema, text: bool) -> list[str]:
    if text:
        return [field.name for field in schema if _is_text(field.type)]
    lists = [field for field in schema if _is_tokens(field.type)]
    # Lists that are all empty are written as list<null>; next to a real one they are no candidate.
    typed = [field for field in lists if not types.is_null(field.type.value_type)]
    return [field.name for field in typed or lists]


def _is_text(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_tokens(kind: pa.DataType) -> bool:
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    ) and _is_integer(kind.value_type)


def _is_integer(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return types.is_integer(kind) or types.is_null(kind)


def _names(names: list[str]) -> str:
    return _listing([repr(name) for name in names])


def _fields(schema: pa.Schema) -> str:
    return _listing([f"{field.name!r}: {field.type}" for field in schema])


def _listing(words: list[str]) -> str:
    shown = words[:_NAMES_SHOWN]
    if len(words) > _NAMES_SHOWN:
        shown.append(f"{len(words) - _NAMES_SHOWN} more")
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]])) or "none"
