"""How the cost of a build grows: 1 to 100 million keywords of kind wide, in 1 to 16 GiB.

    python -m benchmarks.build [--most 100e6] [--folder DIR]

Sets are those of `trie generate`, seed 0. Seconds are the wall time of `trie build` from process
start, and the largest set is verified against its source. MARISA builds from the same keywords, as
in benchmarks/marisa.py, in a process of its own, whose peak memory has the keys in it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flashtrie
from benchmarks.marisa import code_keys, measure_marisa
from benchmarks.record import RESULTS, record
from flashtrie.builder.memory import peak_memory, resident_memory

_SIZES = [1_000_000, 10_000_000, 100_000_000]
_MEMORY = ["1GiB", "2GiB", "4GiB", "16GiB"]
_SHARD_ROWS = 6_250_000


def main() -> None:
    """Measure all sizes and memories; one JSON and one plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=_SIZES[-1], help="keywords of the largest")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/flashtrie-benchmarks"))
    arguments = parser.parse_args()
    sizes = [size for size in _SIZES if size <= arguments.most]
    rows, peers = [], []
    for size in sizes:
        source, artifact = arguments.folder / f"wide-{size}", arguments.folder / f"wide-{size}.trie"
        if not source.exists():
            shards = str(max(4, size // _SHARD_ROWS))
            _trie("generate", source, "--keywords", str(size), "--shards", shards)
        for memory in _MEMORY:
            report = _trie("build", source, "-o", artifact, "--memory", memory, "--force")
            rows.append({"memory": memory} | report)
            print(json.dumps(rows[-1]))
        command = [sys.executable, "-m", __spec__.name, "--marisa", str(artifact)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peers.append({"keywords": size} | json.loads(done.stdout))
        print(json.dumps(peers[-1]))
    checked = _trie("verify", artifact, "--against", source)
    result = {"kind": "wide", "seed": 0, "rows": rows, "marisa": peers, "verified": checked}
    print(record("build", result))
    plot(result, RESULTS / "build.png")


def _trie(*words: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "flashtrie", *map(str, words), "--json", "--quiet"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = round(time.perf_counter() - started, 2)
    report: dict[str, Any] = json.loads(done.stdout)
    report.pop("output", None)
    return report | {"wall_seconds": wall}


def _marisa(artifact: str) -> dict[str, Any]:
    """Figures of marisa-trie on an artifact's keywords in random order, and what its keys take."""
    with flashtrie.open(artifact) as trie:
        keys = code_keys(*trie.keywords(0, len(trie)), trie.artifact.sections["alphabet"])
    random.Random(0).shuffle(keys)
    with_keys = resident_memory()
    found = measure_marisa(keys, [], 3)
    return found | {"keys_rss_bytes": with_keys, "peak_rss_bytes": peak_memory()}


def plot(result: dict[str, Any], path: Path) -> None:
    """Microseconds a keyword and peak memory by the number of keywords."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    time_axes, memory_axes = figure.subplots(1, 2)
    for memory in _MEMORY:
        rows = [row for row in result["rows"] if row["memory"] == memory]
        sizes = [row["keywords"] for row in rows]
        cost = [row["wall_seconds"] / row["keywords"] * 1e6 for row in rows]
        time_axes.plot(sizes, cost, marker="o", label=f"--memory {memory}")
        peak = [row["peak_rss_bytes"] / 2**30 for row in rows]
        memory_axes.plot(sizes, peak, marker="o", label=f"--memory {memory}")
    sizes = [row["keywords"] for row in result["marisa"]]
    cost = [row["build_seconds"] / row["keywords"] * 1e6 for row in result["marisa"]]
    time_axes.plot(sizes, cost, marker="s", color="gray", label="marisa-trie")
    peak = [row["peak_rss_bytes"] / 2**30 for row in result["marisa"]]
    memory_axes.plot(sizes, peak, marker="s", color="gray", label="marisa-trie, with its keys")
    time_axes.set(xscale="log", xlabel="keywords", ylabel="build, microseconds a keyword")
    memory_axes.set(xscale="log", xlabel="keywords", ylabel="peak resident memory, GiB")
    for axes in (time_axes, memory_axes):
        axes.set_ylim(0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--marisa"]:
        print(json.dumps(_marisa(sys.argv[2])))
    else:
        main()
