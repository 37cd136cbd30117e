"""`trie generate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from flashtrie.cli.options import Force, Json, Quiet, need_count, option
from flashtrie.cli.output import Output, facts, size
from flashtrie.cli.progress import progress


def generate(
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="A folder for part-NNNNN.parquet, or one file FILE.parquet."
        ),
    ],
    keywords: Annotated[str, option("Distinct keywords, such as 1e6.", "N")],
    kind: Annotated[
        Literal["query", "wide", "narrow"],
        option("Tokens drawn each for itself, or with 20,000 or 50 successors per token."),
    ] = "wide",
    vocab_size: Annotated[str, option("Tokens are below this.", "V")] = "2.2e6",
    duplicates: Annotated[float, option("Copies among the rows, per keyword.", "D")] = 0.0,
    shards: Annotated[int | None, option("Files in the folder. [default: 4]", "N")] = None,
    seed: Annotated[int, option("Another seed, other keywords.", "S")] = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a synthetic key set as Parquet.

    The same options give the same rows everywhere, whatever the number of shards.
    """
    output = Output(json, quiet)
    count, vocabulary = need_count("--keywords", keywords), need_count("--vocab-size", vocab_size)
    from flashtrie.builder import generate as library

    output.note_if_compiling()
    with progress(output) as report:
        made = library.generate(
            out,
            count,
            kind=kind,
            vocab_size=vocabulary,
            duplicates=duplicates,
            shards=shards,
            seed=seed,
            force=force,
            progress=report,
        )
    shown = asdict(made) | {
        "bytes": size(made.bytes),
        "seconds": f"{made.seconds:.1f} ({made.rows / made.seconds:,.0f} rows/s)",
    }
    output.result(made, facts(shown.items()))
