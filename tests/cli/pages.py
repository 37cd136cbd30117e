"""What README.md and the pages of docs let a reader type, in order, and how tests run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^```(\w*)\n(.*?)^```$|^    (trie (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """`kind` is python, sh, or nothing for what is printed; an indented command is sh, too."""

    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of README.md, or of a page of docs, from top to bottom."""
    found = _BLOCK.findall((ROOT / page).read_text())
    return [Block("sh", command) if command else Block(kind, text) for kind, text, command in found]


def commands(text: str) -> list[str]:
    """The commands of a block, continued lines joined, without comments."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line.partition("  #")[0].strip() for line in joined.splitlines() if line.strip()]


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """By bash, with `trie`, `pip` and `python` of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=os.environ | {"PATH": path} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def table(page: str, *head: str) -> list[list[str]]:
    """The cells of the table with a head."""
    text = (ROOT / page).read_text()
    rest = text.split(f"\n| {' | '.join(head)} |\n")[1]
    lines = rest.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]


def code(cell: str) -> list[str]:
    """What stands between backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)
