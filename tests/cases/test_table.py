"""The table of cases and docs/reliability.md name tests that there are, and counts as measured."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import cases

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
RESULTS = TESTS.parent / "benchmarks" / "results"


# Marks of what `make test` leaves out, and the targets that run it.
LEFT_OUT = {"pytest.mark.large": "make test-large", "pytest.mark.hardware": "make test-gpu"}


class Place(NamedTuple):
    """A test of a case, and what the table says of where it runs: nothing, or a target."""

    file: str
    name: str
    note: str


def rows() -> list[tuple[int | None, list[Place]]]:
    """The number of each case, if it has one, and its tests."""
    pattern = r"^\| ([0-9]*) ?\| [^|]+ \| ([^|]+) \|$"
    return [
        (int(number) if number else None, list(places(text)))
        for number, text in re.findall(pattern, cases.__doc__ or "", re.MULTILINE)
    ]


def places(text: str) -> Iterator[Place]:
    """The tests of `FILE: NAME, NAME (NOTE); FILE: NAME`."""
    for part in text.split("; "):
        file, names = part.split(": ", 1)
        for named in names.split(", "):
            found = re.fullmatch(r"(\w+)(?: \(([^)]+)\))?", named)
            assert found, named
            yield Place(file, found[1], found[2] or "")


def functions(file: Path) -> dict[str, ast.FunctionDef]:
    """The tests of a file."""
    tree = ast.parse(file.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def note(test: ast.FunctionDef) -> str:
    """What the table has to say of it: the target that runs it, or more of it, than `make test`."""
    decorators = [ast.unparse(decorator) for decorator in test.decorator_list]
    for mark, target in LEFT_OUT.items():
        if mark in decorators:
            return target
        if any(mark in text for text in decorators):
            return f"more: {target}"
    return ""


def assert_tests(file: str, names: set[str]) -> None:
    """The functions are in a file below tests."""
    missing = names - functions(TESTS / file).keys()
    assert not missing, f"{file} has no {missing}"


def test_every_case_is_there():
    assert [number for number, _ in rows() if number] == list(range(1, 33))


def test_every_test_is_there():
    for _, tests in rows():
        for file, name, _ in tests:
            assert_tests(file, {name})


def test_every_test_that_is_named_after_a_case_is_in_its_row():
    listed = {(number, place.file, place.name) for number, tests in rows() for place in tests}
    for path in TESTS.glob("**/test_*.py"):
        for name in functions(path):
            if found := re.match(r"test_([0-9]+)_", name):
                assert (int(found[1]), str(path.relative_to(TESTS)), name) in listed


def test_what_make_test_leaves_out_is_said():
    for _, tests in rows():
        for file, name, said in tests:
            assert said == note(functions(TESTS / file)[name]), f"{file}: {name}"


def test_the_cases_that_make_test_does_not_show():
    """A case is shown where one of its tests runs, in whole or in part."""
    hidden = {
        number: " and ".join(sorted({place.note for place in tests}))
        for number, tests in rows()
        if all(place.note in LEFT_OUT.values() for place in tests)
    }
    assert hidden == cases.NOT_IN_MAKE_TEST


def test_there_is_a_target_for_what_make_test_leaves_out():
    makefile = (TESTS.parent / "Makefile").read_text()
    recipes = dict(re.findall(r"^([\w-]+):[^=\n]*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert "FLASHTRIE_LARGE=1 $(BIN)/pytest -m large" in recipes["test-large"]
    assert "$(BIN)/pytest -m gpu" in recipes["test-gpu"]
    assert '"gpu and not hardware"' in recipes["emulate"]
    assert "FLASHTRIE_LARGE" not in recipes["test"] + recipes["emulate"]


def test_every_promise_has_its_tests():
    """And `make test` runs them, as the page says."""
    promises = PAGE.split("## What is promised")[1].split("\n## ")[0]
    lines = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(lines) > 10
    for line in lines:
        named = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", line)
        assert named, line
        for file, names in named:
            tests = set(re.findall(r"`(\w+)`", names))
            assert_tests(file, tests)
            for name in tests:
                assert note(functions(TESTS / file)[name]) not in LEFT_OUT.values(), name


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
