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
_PACKAGES = ("flashtrie", "numpy", "numba", "pyarrow", "marisa-trie", "cupy-cuda13x")


def machine() -> dict[str, Any]:
    """Processor, cores, versions, and the commit of the checkout."""
    return {
        "chip": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "driver": None,
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": commit(),
    }


def _version(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def record(name: str, result: dict[str, Any]) -> Path:
    """Write results/NAME.json: the machine, then the figures."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(machine() | result, indent=1) + "\n")
    return path
