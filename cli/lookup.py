"""`trie lookup`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashtrie.cli.options import (
    Artifact,
    Column,
    Empty,
    Force,
    Json,
    Nulls,
    OnConflict,
    Parquet,
    Quiet,
    Tokenizer,
    Values,
    find_artifact,
    option,
    parse_tokens,
)
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress
from flashtrie.formats.errors import UsageError

if TYPE_CHECKING:
    from flashtrie.formats.progress import Progress


def lookup(
    artifact: Artifact = None,
    tokens: Annotated[
        list[str] | None,
        option("A keyword by its token ids; repeatable.", "T,T,..."),
    ] = None,
    source: Annotated[
        str | None,
        option("Parquet with keywords: a file, folder, glob or URI.", "FILE", "--input"),
    ] = None,
    column: Column = None,
    values: Values = None,
    tokenizer: Tokenizer = None,
    nulls: Nulls = "error",
    empty: Empty = "error",
    on_conflict: OnConflict = "min",
    out: Parquet = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the key ids of keywords. Exit code 1 where one is absent.

    A line each: tokens joined by commas, tab, key id or -, and, where the artifact has values, tab,
    value. With -o the same as Parquet: tokens, key_id (null when absent), value.
    """
    output = Output(json, quiet)
    if bool(tokens) == (source is not None):
        raise UsageError("give either --tokens or --input")
    keywords = [parse_tokens(text) for text in tokens or []]
    path = find_artifact(artifact)
    import flashtrie
    from flashtrie.cpu.answers import AnswersOutput, answers

    output.note_if_compiling()
    found = rows = 0
    results = []
    with flashtrie.open(path) as trie, ExitStack() as stack:
        valued = bool(trie.artifact.header.values)
        file = out and stack.enter_context(AnswersOutput(out, values=valued, force=force))
        report = stack.enter_context(progress(output)) if out else None
        batches = (
            _batches(keywords)
            if source is None
            else _read((source, column, values, tokenizer, nulls, empty), report)
        )
        for answer in answers(trie, batches):
            found += int(answer.found.sum())
            rows += len(answer.key_ids)
            if file:
                file.add(answer)
            elif json:
                results += [
                    {"tokens": tokens, "key_id": key_id, "value": value}
                    for tokens, key_id, value in answer.rows()
                ]
            else:
                for row in answer.rows():
                    print(_line(row, valued))
    if json or out:
        counts = {"found": found, "rows": rows, "results": results, "output": out}
        output.result(counts, f"{found:,} of {rows:,} keywords found; written to {out}")
    if found < rows:
        raise typer.Exit(1)


def _batches(keywords: list[list[int]]) -> Iterator[Any]:
    import numpy as np

    tokens = np.array([token for keyword in keywords for token in keyword], np.uint32)
    yield tokens, np.cumsum([0, *map(len, keywords)], dtype=np.int64)


def _read(reading: Any, report: Progress | None) -> Iterator[Any]:
    from flashtrie.builder.source import Source

    source, *options = reading
    opened = Source.open([source], *options)
    rows = 0
    for task in opened.tasks:
        for batch in opened.read(task):
            yield batch.tokens, batch.offsets
            rows += len(batch.offsets) - 1
            if report:
                report("lookup", rows, opened.rows, "rows")
    opened.check_unchanged()


def _line(row: tuple[list[int], int | None, int | None], valued: bool) -> str:
    tokens, key_id, value = row
    cells = [",".join(map(str, tokens)), "-" if key_id is None else str(key_id)]
    if valued:
        cells.append("-" if value is None else str(value))
    return "\t".join(cells)
