"""Put the counts of benchmarks/results into docs/reliability.md: python docs/reliability.py.

And the number of key sets that mutants are made of, from tests/fuzz/bases.py.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from search_figures import counted

PAGE = Path(__file__).with_name("reliability.md")
RESULTS = PAGE.parents[1] / "benchmarks" / "results"
BASES = PAGE.parents[1] / "tests" / "fuzz" / "bases.py"
BEGIN, END = "## Counts\n", "## What was found by it\n"


def page() -> str:
    """The page with its part of counts anew."""
    text = PAGE.read_text()
    before, behind = text.split(END)[0].split(BEGIN)[0], text.split(END)[1]
    parts = [
        make(json.loads((RESULTS / name).read_text()))
        for name, make in (
            ("fuzz.json", _mutants),
            ("fuzz-h200.json", _mutants_on_gpu),
            ("faults.json", _signals),
        )
        if (RESULTS / name).exists()
    ]
    before = re.sub(r"of \d+ small key sets", f"of {_bases()} small key sets", before)
    return re.sub(r"\n{3,}", "\n\n", "\n".join([before, BEGIN, *parts, END])[:-1] + "\n" + behind)


def _bases() -> int:
    """len(BASES), read from the source: this needs no package."""
    for node in ast.parse(BASES.read_text()).body:
        names = [target.id for target in getattr(node, "targets", []) if hasattr(target, "id")]
        if names == ["BASES"] and isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return len(node.value.keys)
    raise AssertionError(f"{BASES} has no BASES")


def _mutants(found: dict[str, Any]) -> str:
    checked = found["with_bounds_checks"]
    rows = [f"| {outcome} | {count:,} |" for outcome, count in found["outcomes"].items()]
    return "\n".join(
        [
            f"{found['mutants']:,} mutants in {found['seconds']:,} seconds on a core, at most "
            f"{found['slowest_seconds']} s for one; findings: {len(found['findings'])}. With "
            f"checks of array bounds {checked['mutants']:,} more; findings: "
            f"{len(checked['findings'])}. `results/fuzz.json` has them by what was changed.\n",
            "| outcome | mutants |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _mutants_on_gpu(found: dict[str, Any]) -> str:
    checked = found["memcheck"]
    return (
        f"On an {found['chip']} `{found['test']}` passed with {found['mutants']} mutants, and with "
        f"{checked['mutants']} under compute-sanitizer (memcheck: {counted(checked['says'])}). "
        "`results/fuzz-h200.json`.\n"
    )


def _signals(found: dict[str, Any]) -> str:
    tables = []
    for when, head, kinds in (
        ("at_any_moment", "signal", ("old", "new")),
        ("at_the_start", "signal at the start", ("by default", "by its handler")),
    ):
        titles = kinds if when == "at_the_start" else ("old artifact", "new artifact")
        rows = [
            f"| {name} | {' | '.join(str(of.get(kind, 0)) for kind in kinds)} |"
            for name, of in found[when].items()
        ]
        tables += [f"| {head} | {' | '.join(titles)} |", "|---|---|---|", *rows, ""]
    return "\n".join(
        [
            f"Each signal was sent to {found['rounds']} builds at a random moment after they had "
            "begun. The first table counts what was at the output afterwards: the old artifact or "
            f"the new one, always whole. Each signal was also sent to {found['rounds']} builds "
            "while Python was still starting. The second table counts what ended those: the "
            "signal by default, or the handler that FlashTrie installs.\n",
            *tables,
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
