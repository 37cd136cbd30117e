"""One JSON file for each measurement, with the machine and the commit it was made on."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from flashtrie.cpu.machine import commit, processor

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, versions, and the commit of the checkout."""
    return {
        "chip": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "driver": None,
        "python": platform.python_version(),
        "versions": {
            name: metadata.version(name)
            for name in ("flashtrie", "numpy", "numba", "pyarrow", "marisa-trie")
        },
        "commit": commit(),
    }


def record(name: str, result: dict[str, Any]) -> Path:
    """Write results/NAME.json: the machine, then the figures."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(machine() | result, indent=1) + "\n")
    return path
