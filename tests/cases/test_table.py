"""The table of cases names tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests import cases

TESTS = Path(__file__).parents[1]


def rows() -> dict[int, str]:
    table = re.findall(r"^\| ([0-9]+) \| [^|]+ \| ([^|]+) \|$", cases.__doc__ or "", re.MULTILINE)
    return {int(number): tests for number, tests in table}


def test_every_case_is_there():
    assert list(rows()) == list(range(1, 32))


def test_every_test_is_there():
    for number, places in rows().items():
        for place in places.split("; "):
            file, names = place.split(": ")
            tree = ast.parse((TESTS / file).read_text())
            there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            missing = set(names.split(", ")) - there
            assert not missing, f"case {number}: {file} has no {missing}"
