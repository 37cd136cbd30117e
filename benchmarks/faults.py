"""What becomes of many wrong artifacts, and of many builds that get a signal: counts, as JSON.

python -m benchmarks.faults mutants [--count N] [--checked N]
python -m benchmarks.faults signals [--rounds N]

`mutants` stops at nothing: what must not happen is counted and kept with its number. It writes
what it has every some thousand, and goes on from there where it was ended. Behind them come
`--checked` more with Numba's check of array bounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.cases.conftest import make_artifact, make_spilling
from tests.cases.test_killed import CODES, Faults
from tests.fuzz import bases
from tests.fuzz.runner import Outcomes, run

from benchmarks.record import record

_SEED = 0
_STEP = 2000
_PARTIAL = Path(tempfile.gettempdir(), "flashtrie-mutants.json")


def mutants(count: int, checked: int) -> None:
    """Counts of outcomes, by what was changed too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bases.write(folder)
        result: dict[str, Any] = {
            "bases": {base: of.share for base, of in bases.BASES.items()},
            "usual": {"mutants": 0, "seconds": 0},
            "with_bounds_checks": {"mutants": 0, "seconds": 0},
        }
        if _PARTIAL.exists():
            kept = json.loads(_PARTIAL.read_text())
            if kept["bases"] == result["bases"]:
                result = kept
        # Code with checks is other code: it has a cache of its own.
        bounds = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder / "cache")}
        for part, first, stop, environment in (
            ("usual", 0, count, {}),
            ("with_bounds_checks", count, count + checked, bounds),
        ):
            while (number := first + result[part]["mutants"]) < stop:
                step = min(_STEP, stop - number)
                started = time.monotonic()
                outcomes = run(folder, number, step, environment=environment)
                _add(result[part], outcomes, step, time.monotonic() - started)
                _PARTIAL.write_text(json.dumps(result))
    print(record("fuzz", {**result.pop("usual"), **result}))
    _PARTIAL.unlink()


def _add(part: dict[str, Any], outcomes: Outcomes, mutants: int, seconds: float) -> None:
    part["mutants"] += mutants
    part["seconds"] = round(part["seconds"] + seconds)
    part["slowest_seconds"] = round(max(part.get("slowest_seconds", 0), outcomes.slowest), 2)
    part.setdefault("findings", []).extend(outcomes.findings)
    counts, by_change = part.setdefault("outcomes", {}), part.setdefault("by_change", {})
    for outcome, more in outcomes.counts.items():
        counts[outcome] = counts.get(outcome, 0) + more
    for (change, outcome), more in outcomes.by_change.items():
        of = by_change.setdefault(change, {})
        of[outcome] = of.get(outcome, 0) + more


def signals(rounds: int) -> dict[str, Any]:
    """Of each signal, how many builds ended with the old and the new artifact at the output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spilling, artifact = make_spilling(folder), make_artifact(folder)
        faults = Faults(spilling, artifact, folder)
        return {
            "rounds": rounds,
            "seed": _SEED,
            "at_any_moment": {
                number.name: dict(faults.at_any_moment(number, rounds, _SEED)) for number in CODES
            },
            "at_the_start": {
                number.name: dict(faults.at_the_start(number, rounds, _SEED)) for number in CODES
            },
        }


def main() -> None:
    """One of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["mutants", "signals"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--checked", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    if given.what == "mutants":
        mutants(given.count, given.checked)
    else:
        print(record("faults", signals(given.rounds)))


if __name__ == "__main__":
    main()
