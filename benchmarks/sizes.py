"""Bits per keyword of the reference key sets, as `trie build --json` reports them.

python -m benchmarks.sizes [--folder DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.key_sets import ROWS, SEED, write_key_set
from benchmarks.marisa import build
from benchmarks.record import record


def main() -> None:
    """Build each set, by default and with 16-bit low parts; one JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/flashtrie-benchmarks"))
    folder = parser.parse_args().folder
    sets = {}
    for kind in ROWS:
        write_key_set(kind, folder / kind)
        artifact = folder / f"{kind}.trie"
        sets[kind] = {
            "low_bits_auto": build(kind, folder / kind, artifact),
            "low_bits_16": build(kind, folder / kind, artifact, "--low-bits", "16"),
        }
    print(record("sizes", {"seed": SEED, "sets": sets}))


if __name__ == "__main__":
    main()
