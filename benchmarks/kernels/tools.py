"""The profiler and the sanitizer around a search, each in a process of its own.

python -m benchmarks.kernels.tools --profile ARTIFACT
python -m benchmarks.kernels.tools --sanitize
python -m benchmarks.kernels.tools ARTIFACT BATCH       what runs under the profiler
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_STEPS, _PROPOSALS, _SEED, _BEAM_WIDTH = 8, 1000, 0, 1000
_SKIPPED = 4  # launches before the one that is profiled
_METRICS = (
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "dram__bytes_read.sum",
    "launch__registers_per_thread",
)
TOOLS = {"memcheck": 150, "racecheck": 150}  # seconds, beside other work


def profile(artifact: Path, batch: int) -> dict[str, Any]:
    """What the profiler counts in one launch of a batch, by metric, with its unit."""
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw"]
    command += ["--kernel-name", "beam_search", "--launch-skip", str(_SKIPPED)]
    command += ["--launch-count", "1", "--metrics", ",".join(_METRICS)]
    command += [sys.executable, "-m", __spec__.name, str(artifact), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if len(lines) < 3:
        return {"batch": batch, "failed": (done.stdout + done.stderr)[-500:]}
    names, units, *values = csv.reader(lines)
    figures = dict(zip(names, zip(values[-1], units, strict=True), strict=True))
    return {"batch": batch} | {
        name: " ".join(figures[name]).strip() for name in _METRICS if name in figures
    }


def sanitize(tool: str, seconds: int) -> dict[str, Any]:
    """Errors that a tool of compute-sanitizer finds in benchmarks.kernels.small."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    command += [sys.executable, "-m", "benchmarks.kernels.small"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"says": f"not done after {seconds} s"}
    last = [line for line in done.stdout.splitlines() if "SUMMARY" in line or "qual" in line]
    return {"exit_code": done.returncode, "says": last or (done.stdout + done.stderr)[-500:]}


def _launch(artifact: str, batch: int) -> None:
    import numpy as np

    import flashtrie
    from flashtrie.cpu.queries import QueryMaker
    from flashtrie.cpu.query_files import Queries
    from flashtrie.gpu.timing import prepare

    with flashtrie.open(artifact) as trie:
        maker = QueryMaker(trie, _STEPS, _PROPOSALS, _SEED)
        device = trie.to_device()
        searches = []
        for first in range(0, 2 * batch, batch):
            made = [maker.draw(first + i) for i in range(batch)]
            batched = Queries(*(np.stack(arrays) for arrays in zip(*made, strict=True)))
            searches.append(prepare(device, batched, _BEAM_WIDTH))
        for i in range(_SKIPPED + 1):
            searches[i % 2].launch()
        searches[0].result.counts.get()  # waits


def main() -> None:
    """Print what a tool says, as JSON, or be what runs under it."""
    first, *rest = sys.argv[1:]
    if first == "--sanitize":
        with ThreadPoolExecutor() as pool:
            for tool, found in zip(TOOLS, pool.map(sanitize, *zip(*TOOLS.items(), strict=True))):
                print(json.dumps({tool: found}), flush=True)
    elif first == "--profile":
        for batch in (1, 64):
            print(json.dumps(profile(Path(rest[0]), batch)), flush=True)
    else:
        _launch(first, int(rest[0]))


if __name__ == "__main__":
    main()
