"""Cases 19, 20: a wrong artifact is refused, or found by verify, and does no harm meanwhile.

FLASHTRIE_FUZZ_MUTANTS is how many there are, 2,000 by default. What one of them does:

    python -m tests.fuzz.worker FOLDER NUMBER 1

with the bases that `tests.fuzz.bases.write(FOLDER)` has written.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz import bases
from tests.fuzz.exercise import FOUND_OTHER, FOUND_SAME, REFUSED, RIGHT
from tests.fuzz.mutants import Base, mutant
from tests.fuzz.runner import run

MUTANTS = int(os.environ.get("FLASHTRIE_FUZZ_MUTANTS", "2000"))
PARTS = 4

folder = bases.folder


def test_a_mutant_is_a_function_of_base_and_seed(folder):
    first, second = (Base(folder / "indexed.trie") for _ in range(2))
    for seed in range(40):
        assert mutant(first, seed) == mutant(second, seed)
    assert len({mutant(first, seed).data for seed in range(40)}) > 30


@pytest.mark.parametrize("part", range(PARTS))
def test_20_mutants_do_no_harm(folder, part):
    count = MUTANTS // PARTS
    outcomes = run(folder, part * count, count)
    assert outcomes.findings == []
    assert outcomes.counts.total() == count
    print(outcomes.counts)
    for outcome in (REFUSED, FOUND_SAME, FOUND_OTHER, RIGHT):
        assert outcomes.counts[outcome] > count // 100, outcome


@pytest.mark.parametrize("fault", ["hang", "kill", "outside", "memory"])
def test_a_worker_that_fails_is_seen(folder, fault):
    """And the mutants behind it run all the same."""
    outcomes = run(folder, 0, 4, limit=3.0, plant=fault)
    (finding,) = outcomes.findings
    assert finding["number"] == 0
    expected = {"hang": "hang", "kill": "crash", "outside": "crash", "memory": "crash"}[fault]
    assert finding["outcome"] == expected
    detail = {"kill": "SIGKILL", "outside": "SIGSEGV", "memory": "MemoryError"}.get(fault, "")
    assert detail in finding.get("detail", "")
    assert outcomes.counts.total() == 4
