"""`trie verify`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashtrie.cli.command import Command, check_options
from flashtrie.cli.options import (
    Artifact,
    Column,
    Device,
    Empty,
    Json,
    Nulls,
    OnConflict,
    Quiet,
    Tokenizer,
    Values,
    choose_device,
    find_artifact,
    option,
)
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress
from flashtrie.formats.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from flashtrie.formats.invariants import Check

Against = Annotated[
    list[str] | None,
    option("Parquet that it was built from: compare all keywords.", "INPUTS..."),
]


_INPUT_OPTIONS = ("column", "values", "tokenizer", "nulls", "empty", "on_conflict")


class VerifyCommand(Command):
    """Lets one --against take several inputs, as a shell makes of `--against part-*.parquet`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat --against before each word that follows it, up to an option or an artifact."""
        repeated: list[str] = []
        inputs = False
        for word in args:
            follows = inputs and not word.startswith("-") and not word.endswith(".trie")
            if follows and repeated[-1] != "--against":
                follows = not _is_artifact(word)
                repeated += ["--against"] if follows else []
            inputs = follows or word == "--against"
            repeated.append(word)
        return super().parse_args(ctx, repeated)


def verify(
    context: typer.Context,
    artifact: Artifact = None,
    against: Against = None,
    column: Column = None,
    values: Values = None,
    tokenizer: Tokenizer = None,
    nulls: Nulls = "error",
    empty: Empty = "error",
    on_conflict: OnConflict = "min",
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check checksums and structure, and all keywords of a source. Exit code 1 if one is wrong."""
    output = Output(json, quiet)
    if not against:
        check_options(context, "goes with --against alone", *_INPUT_OPTIONS)
    device = choose_device(device, output)
    path = _find_artifact(artifact, against or [])
    reading = (column, values, tokenizer, nulls, empty)
    one_value = on_conflict == "error"
    output.note_if_compiling()
    with progress(output) as report:
        checks = _checks(path, against or [], reading, one_value, device, report)
    ok = all(check.ok for check in checks)
    width = max(len(check.name) for check in checks)
    lines = [f"{'ok' if c.ok else 'WRONG':5}  {c.name:{width}}  {c.detail}" for c in checks]
    result = {"ok": ok, "device": device, "checks": [check._asdict() for check in checks]}
    output.result(result, "\n".join(lines))
    if not ok:
        raise typer.Exit(1)


def _is_artifact(word: str) -> bool:
    """Whether it names an artifact that is not called *.trie."""
    from flashtrie.formats.reader import looks_like_artifact

    return looks_like_artifact(word)


def _find_artifact(given: str | None, inputs: list[str]) -> str:
    try:
        return find_artifact(given)
    except UsageError as error:
        if len(inputs) > 1:
            error.hint = f"Name one before --against, which took {inputs[-1]} for an input"
        raise


def _checks(
    path: str, inputs: list[str], reading: Any, one_value: bool, device: str, report: Any
) -> list[Check]:
    from flashtrie.builder.source import Source
    from flashtrie.cpu.trie import Trie
    from flashtrie.cpu.verify import verify_against
    from flashtrie.formats.invariants import Check, check
    from flashtrie.formats.reader import open_artifact

    # A fault of the input is one of usage, and found before the artifact is read.
    source = Source.open(inputs, *reading) if inputs else None
    try:
        opened = open_artifact(path)
    except ArtifactError as error:
        return [Check("header", False, str(error))]
    with opened:
        trie: Any = Trie(opened)
        known: list[Check] = []
        if device == "cuda":
            from flashtrie.gpu.verify import check_on_device

            trie, known = check_on_device(trie, report)
        checks = check(opened, progress=report, known=known)
        if source is not None and all(c.ok for c in checks):
            parts = [partial(source.read, task) for task in source.tasks]
            checks += verify_against(
                trie,
                parts,
                source.rows,
                valued=source.has_values,
                one_value=one_value,
                progress=report,
            )
            source.check_unchanged()
    return checks
