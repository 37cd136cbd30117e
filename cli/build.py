"""`trie build`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from flashtrie.cli.options import (
    Column,
    Empty,
    Force,
    Json,
    Nulls,
    OnConflict,
    Quiet,
    Tokenizer,
    Values,
    option,
    parse_count,
    parse_share,
    parse_size,
    parse_tags,
)
from flashtrie.cli.output import Output, facts, size
from flashtrie.cli.progress import progress
from flashtrie.formats.errors import UsageError

Inputs = Annotated[
    list[str], typer.Argument(metavar="INPUTS", help="Parquet files, folders, globs or URIs.")
]
Out = Annotated[
    str | None,
    option("The artifact; by default STEM.trie here, for one input.", "OUT.trie", "-o", "--output"),
]
VocabSize = Annotated[str | None, option("Tokens are below this. [default: the largest + 1]", "V")]
Memory = Annotated[
    str | None, option("Memory, such as 2GiB. [default: half of what is free]", "SIZE")
]
Threads = Annotated[int | None, option("Threads. [default: one a core]", "N")]
TmpDir = Annotated[
    str | None,
    option("Folder for scratch. [default: the output's]", "DIR", envvar="TRIE_TMP_DIR"),
]
LowBits = Annotated[
    str, option("Width of the low parts of labels; auto: the smallest file.", "auto|4..16")
]
Tails = Annotated[
    Literal["auto", "implicit", "indexed"], option("How tails are kept; auto: the smallest file.")
]
Tag = Annotated[list[str] | None, option("Something to keep in the file; repeatable.", "KEY=VALUE")]
MinKeywords = Annotated[str | None, option("Exit 1 if the result has fewer than N keywords.", "N")]
MaxShrink = Annotated[
    str | None,
    option(
        "Exit 1 if the result has fewer keywords than the file it would replace, by more than this "
        "share (5% or 0.05).",
        "SHARE",
    ),
]
DryRun = Annotated[
    bool, option("Read the footers alone and say what would be done.", None, "--dry-run")
]


def build(
    inputs: Inputs,
    output: Out = None,
    column: Column = None,
    values: Values = None,
    tokenizer: Tokenizer = None,
    nulls: Nulls = "error",
    empty: Empty = "error",
    on_conflict: OnConflict = "min",
    vocab_size: VocabSize = None,
    memory: Memory = None,
    threads: Threads = None,
    tmp_dir: TmpDir = None,
    low_bits: LowBits = "auto",
    tails: Tails = "auto",
    tag: Tag = None,
    min_keywords: MinKeywords = None,
    max_shrink: MaxShrink = None,
    force: Force = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build an artifact from Parquet.

    The artifact depends on the rows, values and options alone, not on their order.
    """
    out = Output(json, quiet)
    options: dict[str, Any] = {
        "column": column,
        "values": values,
        "tokenizer": tokenizer,
        "memory": parse_size("--memory", memory),
        "threads": threads,
    }
    rest: dict[str, Any] = {
        "nulls": nulls,
        "empty": empty,
        "on_conflict": on_conflict,
        "vocab_size": parse_count("--vocab-size", vocab_size),
        "tmp_dir": tmp_dir,
        "low_bits": None if low_bits == "auto" else parse_count("--low-bits", low_bits),
        "tails": tails,
        "tags": parse_tags(tag),
        "min_keywords": parse_count("--min-keywords", min_keywords),
        "max_shrink": parse_share("--max-shrink", max_shrink),
        "force": force,
    }
    from flashtrie.builder import build as library

    path = output or _default_output(inputs)
    if dry_run:
        plan = asdict(library.plan(inputs, **options)) | {"output": path}
        out.result(plan, facts(plan.items()))
        return
    out.note_if_compiling()
    with progress(out) as report:
        made = library.build(inputs, path, **options, **rest, progress=report)
    shown = asdict(made) | {
        "bytes": size(made.bytes),
        "seconds": f"{made.seconds:.1f} ({made.rows / made.seconds:,.0f} rows/s)",
        "peak_rss_bytes": size(made.peak_rss_bytes),
    }
    out.result(made, facts((name, value) for name, value in shown.items() if name != "phases"))


def _default_output(inputs: list[str]) -> str:
    from flashtrie.builder.inputs import output_stem

    stem = output_stem(inputs[0]) if len(inputs) == 1 else None
    if stem is None:
        many = "several inputs have" if len(inputs) > 1 else f"{inputs[0]} has"
        raise UsageError(f"{many} no name for the artifact", hint="Name it with -o OUT.trie")
    return f"{stem}.trie"
