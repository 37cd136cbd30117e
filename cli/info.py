"""`trie info`."""

from __future__ import annotations

from flashtrie.cli.options import Artifact, Json, Quiet, find_artifact
from flashtrie.cli.output import Output, facts, size, table


def info(artifact: Artifact = None, json: Json = False, quiet: Quiet = False) -> None:
    """Print what an artifact holds and weighs, by section and level.

    Reads the header alone: milliseconds, whatever the size.
    """
    path = find_artifact(artifact)
    from flashtrie.formats.info import describe
    from flashtrie.formats.reader import open_artifact

    opened = open_artifact(path)
    try:
        found = describe(opened)
    finally:
        opened.close()
    kept = ("level", "nodes", "inner", "terminals", "tails", "keywords", "bytes")
    text = "\n\n".join(
        [
            facts(
                [
                    ("artifact", path),
                    *((key, value) for key, value in found.items() if not _nested(value)),
                    ("size", size(found["bytes"])),
                    *((f"tag {key}", value) for key, value in found["tags"].items()),
                ]
            ),
            table(
                ["section", "bytes", "bits/keyword"],
                [
                    [name, section["bytes"], section["bits_per_keyword"]]
                    for name, section in found["sections"].items()
                    if section["bytes"]
                ],
            ),
            table(
                [*kept, "bits/keyword"],
                [
                    [*(level[key] for key in kept), level["bits_per_keyword"]]
                    for level in found["levels"]
                ],
            ),
        ]
    )
    Output(json, quiet).result(found, text)


def _nested(value: object) -> bool:
    return isinstance(value, dict | list)
