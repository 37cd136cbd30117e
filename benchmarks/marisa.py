"""Size, build speed and lookups against PyPI marisa-trie on the reference key sets.

    python -m benchmarks.marisa [KIND]... [--folder DIR]

MARISA gets the distinct keywords in a fixed random order, as prefix-free 1-3-byte codes of the
frequency ranks, and as 3 bytes a token. Making these keys is not counted, and it needs the same
alphabet beside it that the artifact holds. Ours is the wall time of `trie build` from process
start on Parquet in the page cache, with checksums and fsync.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np
import numpy.typing as npt

import flashtrie
from benchmarks.key_sets import ROWS, SEED, write_key_set
from benchmarks.record import record
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.scatter import encode_rows

_BUILDS = 3
_LOOKUPS = 1_000_000

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]


def main() -> None:
    """Measure each kind; one JSON for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(ROWS))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/flashtrie-benchmarks"))
    arguments = parser.parse_args()
    sets = {}
    for kind in arguments.kinds or ROWS:
        sets[kind] = measure(kind, arguments.folder)
        print(json.dumps({kind: sets[kind]}, indent=1))
    print(record("marisa", {"seed": SEED, "sets": sets}))


def measure(kind: str, folder: Path) -> dict[str, Any]:
    """All figures of one key set."""
    source, artifact = folder / kind, folder / f"{kind}.trie"
    write_key_set(kind, source)
    builds = [build(kind, source, artifact) for _ in range(_BUILDS + 1)][1:]
    ours = min(builds, key=lambda report: report["wall_seconds"])
    sixteen = build(kind, source, folder / f"{kind}-16.trie", "--low-bits", "16")
    with flashtrie.open(artifact) as trie:
        tokens, offsets = trie.keywords(0, len(trie))
        order = np.random.default_rng(SEED).permutation(len(trie))
        lookups = order[:_LOOKUPS]
        rate = _our_lookups(trie, tokens, offsets, lookups)
        alphabet = trie.artifact.sections["alphabet"]
        peers = {}
        for name, keys in (
            ("codes", code_keys(tokens, offsets, alphabet)),
            ("three_bytes", _three_byte_keys(tokens, offsets)),
        ):
            shuffled = [keys[i] for i in order.tolist()]
            sought = [keys[i] for i in lookups.tolist()]
            del keys
            for tries in (3, 1):
                peers[f"{name}_{tries}"] = measure_marisa(shuffled, sought, tries)
    race = peers["codes_3"]
    return {
        "rows": ours["rows"],
        "keywords": ours["keywords"],
        "bits_per_keyword": round(ours["bits_per_keyword"], 2),
        "bits_per_keyword_low_bits_16": round(sixteen["bits_per_keyword"], 2),
        "build_seconds": ours["wall_seconds"],
        "build_seconds_all": [report["wall_seconds"] for report in builds],
        "build_phases": ours["phases"],
        "build_peak_rss_bytes": ours["peak_rss_bytes"],
        "lookups_per_second": rate,
        "marisa": peers,
        "build_speedup": round(race["build_seconds"] / ours["wall_seconds"], 2),
        "lookup_speedup": round(rate / race["lookups_per_second"], 2),
    }


def build(kind: str, source: Path, artifact: Path, *options: str) -> dict[str, Any]:
    """The report of `trie build`, with its wall time from process start."""
    command = [sys.executable, "-m", "flashtrie", "build", str(source), "-o", str(artifact)]
    command += ["--tag", f"kind={kind}", "--force", "--json", "--quiet", *options]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    report: dict[str, Any] = json.loads(done.stdout)
    return report | {"wall_seconds": round(seconds, 2)}


def _our_lookups(trie: Any, tokens: U32, offsets: I64, rows: I64) -> int:
    """Keywords a second of one batch on one thread."""
    parts = [tokens[offsets[row] : offsets[row + 1]] for row in rows.tolist()]
    flat = np.concatenate(parts)
    ends = np.cumsum([0, *(len(part) for part in parts)])
    trie.lookup_flat(flat[: ends[1000]], ends[:1001], threads=1)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        key_ids = trie.lookup_flat(flat, ends, threads=1)
        best = min(best, time.perf_counter() - started)
        assert (key_ids == rows).all()
    return round(len(rows) / best)


def code_keys(tokens: U32, offsets: I64, alphabet: U32) -> list[bytes]:
    """Each keyword as the codes of its ranks."""
    rank_of = np.empty(int(alphabet.max()) + 1, np.uint32)
    rank_of[alphabet] = np.arange(len(alphabet), dtype=np.uint32)
    return encode_rows(rank_of[tokens], offsets, rank_codes(len(alphabet))).strings()


def _three_byte_keys(tokens: U32, offsets: I64) -> list[bytes]:
    data = tokens.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()
    bounds = (3 * offsets).tolist()
    return [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def measure_marisa(keys: list[bytes], sought: list[bytes], tries: int) -> dict[str, Any]:
    """Bits per keyword, seconds to build from `keys`, and lookups a second of `sought`, if any."""
    started = time.perf_counter()
    trie = marisa_trie.BinaryTrie(keys, num_tries=tries)
    seconds = time.perf_counter() - started
    result = {
        "bits_per_keyword": round(8 * len(trie.tobytes()) / len(keys), 2),
        "build_seconds": round(seconds, 2),
    }
    if not sought:
        return result
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        found = 0
        for key in sought:
            found += key in trie
        best = min(best, time.perf_counter() - started)
        assert found == len(sought)
    return result | {"lookups_per_second": round(len(sought) / best)}


if __name__ == "__main__":
    main()
