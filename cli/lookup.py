"""`trie lookup`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flashtrie.cli.options import (
    Artifact,
    Column,
    Empty,
    Force,
    Json,
    Nulls,
    Parquet,
    Quiet,
    Tokenizer,
    find_artifact,
    option,
    parse_tokens,
)
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress
from flashtrie.formats.errors import UsageError

if TYPE_CHECKING:
    from flashtrie.builder.source import Source
    from flashtrie.formats.progress import Progress

# Input options are one group of all commands that read: what was given to build may be given here.
_IGNORED = "For build and verify; ignored here."
Values = Annotated[str | None, option(_IGNORED, "NAME")]
OnConflict = Annotated[Literal["min", "error"], option(_IGNORED)]


def lookup(
    artifact: Artifact = None,
    tokens: Annotated[
        list[str] | None,
        option("A keyword by its token ids; repeatable.", "T,T,..."),
    ] = None,
    input: Annotated[
        str | None, option("Parquet with keywords: a file, folder, glob or URI.", "FILE")
    ] = None,
    column: Column = None,
    values: Values = None,
    tokenizer: Tokenizer = None,
    nulls: Nulls = "error",
    empty: Empty = "error",
    on_conflict: OnConflict = "min",
    output: Parquet = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the key ids of keywords. Exit code 1 where one is absent.

    A line each: tokens joined by commas, tab, key id or -, and, where the artifact has values, tab,
    value. With -o the same as Parquet: tokens, key_id (null when absent), value.
    """
    out = Output(json, quiet)
    if bool(tokens) == (input is not None):
        raise UsageError("give either --tokens or --input")
    keywords = [parse_tokens(text) for text in tokens or []]
    path = find_artifact(artifact)
    import flashtrie
    from flashtrie.builder.source import Source
    from flashtrie.cpu.answers import AnswersOutput, answers

    out.note_if_compiling()
    found = rows = 0
    results = []
    with flashtrie.open(path) as trie, ExitStack() as stack:
        valued = bool(trie.artifact.header.values)
        source = None
        if input is not None:
            source = Source.open([input], column, None, tokenizer, nulls, empty)
        reads: list[Any] = [trie.artifact.descriptor, *(source.reads if source else [])]
        file = output and stack.enter_context(
            AnswersOutput(output, values=valued, force=force, reads=reads)
        )
        report = stack.enter_context(progress(out)) if output else None
        batches = _batches(keywords) if source is None else _read(source, report)
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
    if json or output:
        counts = {"found": found, "rows": rows, "results": results, "output": output}
        out.result(counts, f"{found:,} of {rows:,} keywords found; written to {output}")
    if found < rows:
        raise typer.Exit(1)


def _batches(keywords: list[list[int]]) -> Iterator[Any]:
    import numpy as np

    tokens = np.array([token for keyword in keywords for token in keyword], np.uint32)
    yield tokens, np.cumsum([0, *map(len, keywords)], dtype=np.int64)


def _read(source: Source, report: Progress | None) -> Iterator[Any]:
    rows = 0
    for task in source.tasks:
        for batch in source.read(task):
            yield batch.tokens, batch.offsets
            rows += len(batch.offsets) - 1
            if report:
                report("lookup", rows, source.rows, "rows")
    source.check_unchanged()


def _line(row: tuple[list[int], int | None, int | None], valued: bool) -> str:
    tokens, key_id, value = row
    cells = [",".join(map(str, tokens)), "-" if key_id is None else str(key_id)]
    if valued:
        cells.append("-" if value is None else str(value))
    return "\t".join(cells)
