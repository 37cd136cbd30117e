"""Options that commands share, and what their texts mean: sizes, counts, percentages, pairs."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flashtrie.cli.output import Output
from flashtrie.formats.errors import UsageError


def option(help: str, metavar: str | None = None, *names: str, **settings: Any) -> Any:
    """A Typer option. Help shows a variable only where it is not the rule's TRIE_COMMAND_OPTION."""
    settings |= {"help": help, "metavar": metavar, "show_envvar": "envvar" in settings}
    return typer.Option(*names, **settings)


Json = Annotated[bool, option("One JSON object on stdout.", None, "--json")]
Quiet = Annotated[bool, option("No progress and no notes.", None, "--quiet")]
Force = Annotated[bool, option("Replace what is at the output.", None, "--force")]
Artifact = Annotated[
    str | None,
    typer.Argument(
        metavar="ARTIFACT",
        help="The artifact; by default $TRIE_ARTIFACT, else the only *.trie file here.",
        show_default=False,
    ),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    option("Where to run; auto: the GPU where there is one.", envvar="TRIE_DEVICE"),
]
Parquet = Annotated[str | None, option("Write Parquet.", "OUT.parquet", "-o", "--output")]

# The input options of build, verify --against and lookup --input.
Column = Annotated[
    str | None, option("The column of keywords, if more than one could be it.", "NAME")
]
Values = Annotated[str | None, option("A column of integers, a value for each keyword.", "NAME")]
Tokenizer = Annotated[
    str | None, option("A tokenizer.json (Hugging Face tokenizers): keywords are text.", "FILE")
]
Nulls = Annotated[Literal["error", "skip"], option("Null keywords and values.")]
Empty = Annotated[Literal["error", "skip"], option("Keywords of no tokens.")]
OnConflict = Annotated[
    Literal["min", "error"], option("A keyword of several values: the smallest, or an error.")
]

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power}
_NUMBER = re.compile(r"[0-9][0-9_]*(\.[0-9]+)?(e[0-9]+)?", re.IGNORECASE)


def find_artifact(given: str | None) -> str:
    """The artifact that is meant where none may be named."""
    chosen = given or os.environ.get("TRIE_ARTIFACT")
    if chosen:
        return chosen
    found = sorted(str(path) for path in Path().glob("*.trie") if path.is_file())
    if len(found) == 1:
        return found[0]
    several = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
    raise UsageError(
        "no artifact was named",
        cause="TRIE_ARTIFACT is not set, and there is "
        + (f"more than one *.trie file here: {several}" if found else "no *.trie file here"),
        hint="Name one",
    )


def choose_device(device: str, output: Output) -> Literal["cpu", "cuda"]:
    """Which device is used, cpu or cuda, and a note of it; an error where cuda cannot be."""
    if device == "cpu":
        output.note("device: cpu")
        return "cpu"
    from flashtrie.gpu import devices

    missing = devices.missing()
    if missing is None:
        output.note(f"device: cuda, {devices.chip()}")
        return "cuda"
    if device == "cuda":
        raise missing.error()
    output.note(f"device: cpu ({missing.cause})")
    return "cpu"


def parse_size(option: str, text: str | None) -> int | None:
    """Bytes of 2GiB, 500MB or 1e9."""
    if text is None:
        return None
    number = _NUMBER.match(text)
    unit = _UNITS.get(text[number.end() :].strip().upper()) if number else None
    # 1e999 is infinite, and so may a number be with its unit.
    value = float(number[0]) * unit if number and unit else math.inf
    if value == math.inf:
        raise UsageError(f"{option} is a size such as 2GiB, 500MB or 1e9, not {text!r}")
    return int(value)


def parse_count(option: str, text: str | None) -> int | None:
    """A whole number, 1000000 or 1e6, if it is given."""
    return None if text is None else need_count(option, text)


def need_count(option: str, text: str) -> int:
    """A whole number, 1000000 or 1e6."""
    number = _NUMBER.fullmatch(text)
    value = float(text) if number else 0.5
    if not value.is_integer():
        raise UsageError(f"{option} is a whole number such as 1000000 or 1e6, not {text!r}")
    return int(text) if text.isdigit() else int(value)


def parse_share(option: str, text: str | None) -> float | None:
    """A fraction: 5% or 0.05."""
    if text is None:
        return None
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{option} is a share such as 5% or 0.05, not {text!r}")
    return share


def parse_tags(pairs: list[str] | None) -> dict[str, str]:
    """Tags by key, of KEY=VALUE each."""
    tags: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"--tag is KEY=VALUE, not {pair!r}")
        if key in tags:
            raise UsageError(f"--tag {key} is given twice")
        tags[key] = value
    return tags


def parse_tokens(text: str) -> list[int]:
    """The token ids of 12,7,93."""
    try:
        tokens = [int(token) for token in text.split(",")]
    except ValueError:
        tokens = []
    if not tokens or not all(0 <= token < 2**32 for token in tokens):
        raise UsageError(f"--tokens is token ids such as 12,7,93, not {text!r}")
    return tokens
