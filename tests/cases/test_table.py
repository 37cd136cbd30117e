"""The table of cases and docs/reliability.md name tests that there are, and counts as measured."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import cases

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
RESULTS = TESTS.parent / "benchmarks" / "results"


def rows() -> list[tuple[str, str]]:
    """The number of each case, if it has one, and its tests."""
    pattern = r"^\| ([0-9]*) ?\| [^|]+ \| ([^|]+) \|$"
    return re.findall(pattern, cases.__doc__ or "", re.MULTILINE)


def assert_tests(file: str, names: set[str]) -> None:
    """The functions are in a file below tests."""
    tree = ast.parse((TESTS / file).read_text())
    missing = names - {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not missing, f"{file} has no {missing}"


def test_every_case_is_there():
    assert [int(number) for number, _ in rows() if number] == list(range(1, 33))


def test_every_test_is_there():
    for _, places in rows():
        for place in places.split("; "):
            file, names = place.split(": ")
            assert_tests(file, set(names.split(", ")))


def test_every_promise_has_its_tests():
    promises = PAGE.split("## What is promised")[1].split("\n## ")[0]
    lines = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 10
    for line in lines:
        named = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", line)
        assert named, line
        for file, names in named:
            assert_tests(file, set(re.findall(r"`(\w+)`", names)))


def of_page(head: str) -> list[list[str]]:
    """The cells of the table that begins with a head."""
    lines = PAGE.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def counts(name: str) -> dict[str, Any]:
    """What was measured; `python -m benchmarks.faults` writes it."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"there is no {path.name}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_counts_of_mutants_are_those_of_the_results():
    found = counts("fuzz")
    assert found["findings"] == found["with_bounds_checks"]["findings"] == []
    outcomes = {row[0]: int(row[1].replace(",", "")) for row in of_page("outcome")}
    assert outcomes == found["outcomes"]
    assert sum(outcomes.values()) == found["mutants"] >= 100_000


@pytest.mark.parametrize(
    ("when", "head", "kinds"),
    [
        ("at_any_moment", "signal", ["old", "new"]),
        ("at_the_start", "signal at the start", ["by default", "by its handler"]),
    ],
)
def test_the_counts_of_signals_are_those_of_the_results(when, head, kinds):
    found = counts("faults")
    assert found["rounds"] >= 100
    for name, *cells in of_page(head):
        assert [int(cell) for cell in cells] == [found[when][name].get(kind, 0) for kind in kinds]
