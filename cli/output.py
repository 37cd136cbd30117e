"""What a command prints: results on stdout, as text or one JSON object, notes on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from flashtrie.formats.errors import FlashTrieError


@dataclass(frozen=True)
class Output:
    """How this run prints: --json and --quiet."""

    json: bool
    quiet: bool

    def result(self, value: Any, text: str) -> None:
        """Print the result: `value`, a dict or a report, with --json, else `text`.

        JSON has no infinities and no NaN: there they are null.
        """
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        try:
            print(_json(value) if self.json else text)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_stdout()  # nobody reads it; what the check said still is the exit code

    def note(self, text: str) -> None:
        """Tell something that is no result. Nothing with --quiet."""
        if not self.quiet:
            print_stderr(text)

    def note_if_compiling(self) -> None:
        """Say why the first run on a machine takes longer. Call it where compiled code is used."""
        if not self.quiet:
            from flashtrie.formats.jit import is_cold

            if is_cold():
                print_stderr("note: the first run compiles, which takes some seconds once")


def print_error(error: FlashTrieError, as_json: bool) -> None:
    """Print an error: one message on stderr, or with --json one object on stdout."""
    if not as_json:
        print_stderr(f"error: {error}")
        return
    parts = {name: getattr(error, name) for name in ("what", "where", "cause", "hint")}
    with contextlib.suppress(OSError):
        print(_json({"error": parts, "exit_code": error.exit_code}), flush=True)


def print_stderr(text: str) -> None:
    """Print a line on stderr, if anybody listens."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def discard_stdout() -> None:
    """Let what is still printed go nowhere, the last flush of the interpreter included."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Lines of name and value, the values in one column."""
    rows = [(name, shown(value)) for name, value in pairs]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table with a head; columns of numbers to the right."""
    cells = [list(head), *([shown(value) for value in row] for row in rows)]
    columns = []
    for i, column in enumerate(zip(*cells, strict=True)):
        width = max(map(len, column))
        number = all(row[i] is None or isinstance(row[i], int | float) for row in rows)
        columns.append([cell.rjust(width) if number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def size(count: int) -> str:
    """Bytes in units of 1024."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def _json(value: Any) -> str:
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """What JSON can say. NumPy numbers and arrays have a plain form of their own."""
    if isinstance(value, dict):
        return {key: _plain(other) for key, other in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(other) for other in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _plain(value.tolist()) if hasattr(value, "tolist") else value
