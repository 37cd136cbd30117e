"""`trie dump`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashtrie.cli.options import Artifact, Force, Json, Parquet, Quiet, find_artifact
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress
from flashtrie.formats.errors import UsageError

if TYPE_CHECKING:
    from flashtrie.cpu.dump import Block


def dump(
    artifact: Artifact = None,
    output: Parquet = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the keywords in the order of their key ids.

    A line each: key id, tab, tokens joined by commas and, where there is one, tab, value. With -o
    the same as Parquet: key_id, tokens, value.
    """
    out = Output(json, quiet)
    if json and output is None:
        raise UsageError("--json needs -o", hint="Name a Parquet file with -o, or leave --json out")
    path = find_artifact(artifact)
    import flashtrie
    from flashtrie.cpu import dump as library

    out.note_if_compiling()
    with flashtrie.open(path) as trie:
        if output is None:
            for block in library.blocks(trie):
                print(_lines(block))
            return
        with progress(out) as report:
            library.dump(trie, output, force=force, progress=report)
        out.result(
            {"keywords": len(trie), "output": output}, f"{len(trie):,} keywords written to {output}"
        )


def _lines(block: Block) -> str:
    tokens, offsets = list(map(str, block.tokens.tolist())), block.offsets.tolist()
    lines = [
        f"{key_id}\t{','.join(tokens[offsets[i] : offsets[i + 1]])}"
        for i, key_id in enumerate(block.key_ids.tolist())
    ]
    if block.values is not None:
        lines = [f"{line}\t{value}" for line, value in zip(lines, block.values.tolist())]
    return "\n".join(lines)
