"""`trie diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from flashtrie.cli.options import Force, Json, Parquet, Quiet
from flashtrie.cli.output import Output, facts
from flashtrie.cli.progress import progress


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The artifact from before.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The artifact of now.")],
    output: Parquet = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count the keywords added, removed and of another value.

    The Parquet of -o has the columns change, tokens, old_value and new_value.
    """
    out = Output(json, quiet)
    import flashtrie
    from flashtrie.cpu import diff as library

    out.note_if_compiling()
    with flashtrie.open(old) as before, flashtrie.open(new) as after, progress(out) as report:
        found = library.diff(before, after, output, force=force, progress=report)
    counts = {
        "old_keywords": found.old_keywords,
        "new_keywords": found.new_keywords,
        "added": found.added,
        "removed": found.removed,
        "changed": found.changed,
    }
    out.result(counts | {"output": output}, facts(counts.items()))
