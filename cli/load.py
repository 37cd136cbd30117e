"""`trie load`."""

from __future__ import annotations

from flashtrie.cli.options import Artifact, Json, Quiet, find_artifact, no_gpu_engine


def load(artifact: Artifact = None, json: Json = False, quiet: Quiet = False) -> None:
    """Load an artifact into GPU memory, and say how fast. Not in this version.

    It ends with an error: this version has no GPU engine.
    """
    find_artifact(artifact)
    raise no_gpu_engine()
