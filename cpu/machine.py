"""What a measurement was made on: the processor, and the commit of the checkout."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def processor() -> str:
    """The name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """$TRIE_COMMIT, else the commit of the checkout that the package runs from, else None.

    A copy of a checkout may hold another history than its files: whoever copies says so.
    """
    if named := os.environ.get("TRIE_COMMIT"):
        return named
    root = Path(__file__).resolve().parent.parent  # behind the link, where there is one
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            done = None
        if done is not None and done.returncode == 0:
            return done.stdout.strip()
    return None
