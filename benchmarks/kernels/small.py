"""A small search in all its paths, for compute-sanitizer; exit code 1 where results differ.

compute-sanitizer --tool memcheck python -m benchmarks.kernels.small
compute-sanitizer --tool racecheck python -m benchmarks.kernels.small
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import cupy
import numpy as np

import flashtrie
from benchmarks.kernels.variants import SANITIZED
from flashtrie.builder.generate import generate
from flashtrie.cpu.bench import same_results
from flashtrie.cpu.queries import QueryMaker


def main() -> int:
    """Search in each case, then with a wrong payload, which must not fault."""
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.parquet")
        generate(rows, 20_000)
        artifact = Path(folder, "rows.trie")
        flashtrie.build([rows], artifact)
        with flashtrie.open(artifact) as trie:
            device = trie.to_device()
            made = [QueryMaker(trie, 6, 200, 0).draw(i) for i in range(3)]
            tokens, logprobs, end = (np.stack(arrays) for arrays in zip(*made, strict=True))
            for changes, group, beam_width in SANITIZED:
                device.searcher.changes = dict(changes)
                device.searcher.most_group = group
                found, expected = (
                    engine.search(tokens, logprobs, beam_width=beam_width, end_logprobs=end)
                    for engine in (device, trie)
                )
                equal &= same_results(found, expected)
            payload = device.payload()
            rng = np.random.default_rng(0)
            at = cupy.asarray(rng.integers(0, len(payload) - 256, 5000))
            payload[at] = cupy.asarray(rng.integers(0, 256, 5000), np.uint8)
            device.search_on_device(tokens, logprobs, beam_width=60)
            cupy.cuda.Device().synchronize()
    print("equal" if equal else "unequal")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
