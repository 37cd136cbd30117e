"""`trie load`."""

from __future__ import annotations

from typing import Any

from flashtrie.cli.options import Artifact, Json, Quiet, choose_device, find_artifact
from flashtrie.cli.output import Output, facts, size
from flashtrie.cli.progress import progress


def load(artifact: Artifact = None, json: Json = False, quiet: Quiet = False) -> None:
    """Load an artifact into GPU memory, verify its checksums there, and say how fast.

    The memory is free again when the command ends: it shows that the artifact fits, and the rate.
    """
    output = Output(json, quiet)
    path = find_artifact(artifact)
    choose_device("cuda", output)
    import flashtrie
    from flashtrie.gpu.devices import chip

    with flashtrie.open(path) as trie, progress(output) as report:
        loaded = trie.to_device(report).report
    result: dict[str, Any] = {
        "artifact": path,
        "chip": chip(),
        "bytes": loaded.bytes,
        "derived_bytes": loaded.derived,
        "seconds": loaded.seconds,
        "gigabytes_per_second": loaded.gigabytes_per_second,
        "free_bytes": loaded.free,
    }
    shown = {name: size(count) for name, count in result.items() if name.endswith("bytes")}
    output.result(result, facts((result | shown).items()))
