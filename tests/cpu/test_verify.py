"""Verify against a source that has more, fewer, or other rows than the artifact."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashtrie.cpu.verify import verify_against

ROWS = [[1], [1, 2], [1, 2, 3], [4, 5, 6, 7], [4, 5, 9], [1, 2]]
VALUES = [5, 6, 7, 8, 9, 16]


def batch(rows: Any, values: Any = None) -> Any:
    return SimpleNamespace(
        tokens=np.array([t for row in rows for t in row], np.uint32),
        offsets=np.cumsum([0, *map(len, rows)]),
        values=None if values is None else np.array(values, np.int64),
    )


def checks(trie, rows, values=None, **options):
    """The names of the checks that say no, of a source in parts of two rows."""

    def read(i: int) -> list[Any]:
        return [batch(rows[i : i + 2], None if values is None else values[i : i + 2])]

    parts = [partial(read, i) for i in range(0, len(rows), 2)]
    found = verify_against(trie, parts, len(rows), valued=values is not None, **options)
    assert [check.name for check in found] == ["source", "keywords", "values"]
    assert all(check.detail for check in found)
    return [check.name for check in found if not check.ok]


@pytest.fixture
def trie(build_trie):
    with build_trie(ROWS, VALUES) as trie:
        yield trie


@pytest.mark.parametrize("threads", [1, 3])
def test_its_own_source(trie, threads):
    assert checks(trie, ROWS, VALUES, threads=threads) == []
    assert checks(trie, ROWS[::-1], VALUES[::-1], threads=threads) == []


@pytest.mark.parametrize(
    "rows, values, wrong",
    [
        (ROWS + [[4]], VALUES + [0], ["source"]),
        (ROWS + [[2**32 - 2]], VALUES + [0], ["source"]),
        (ROWS[1:], VALUES[1:], ["keywords"]),
        ([[8]], [1], ["source", "keywords"]),
        (ROWS, [5, 6, 7, 8, 10, 16], ["values"]),
        (ROWS, [5, 6, 7, 8, 9, 3], ["values"]),
        (ROWS, [5, 17, 7, 8, 9, 16], ["values"]),
        (ROWS, None, []),
    ],
)
def test_another_source(trie, rows, values, wrong):
    assert checks(trie, rows, values) == wrong


def test_one_value_for_each_keyword(trie):
    assert checks(trie, ROWS, VALUES, one_value=True) == ["values"]
    assert checks(trie, ROWS[:-1], VALUES[:-1], one_value=True) == []


def test_values_that_the_artifact_lacks(build_trie):
    with build_trie(ROWS) as trie:
        assert checks(trie, ROWS) == []
        assert checks(trie, ROWS, VALUES) == ["values"]
