"""A process that makes mutants, uses each, and says what came of it: `python -m tests.fuzz.worker`.

    FOLDER FIRST COUNT [--guard] [--plant FAULT]

A line of JSON before each mutant, and one with its outcome. Mutant number i is made with seed i of
the base that i draws; FOLDER has the bases. `--plant` makes the first mutant a fault of the worker
itself, to test who watches it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import flashtrie
from flashtrie.formats import reader
from tests.fuzz.bases import BASES
from tests.fuzz.exercise import Probe, Wrong, answers, make_probe, use
from tests.fuzz.guard import GuardedMaps, guard_searches
from tests.fuzz.mutants import Base, Mutant, mutant

_MORE_MEMORY = 3 << 30  # address space that a mutant may take


def base_of(number: int) -> str:
    """The base that a mutant is made of."""
    shares = [base.share for base in BASES.values()]
    (name,) = random.Random(f"base {number}").choices(list(BASES), shares)
    return name


def make(folder: Path, number: int) -> Mutant:
    """A mutant, as its number says."""
    return mutant(Base(folder / f"{base_of(number)}.trie"), number)


class Worker:
    """The bases, and what the right answers are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps = GuardedMaps()
        reader_module: Any = reader
        reader_module.mmap = self._maps
        guard_searches()
        self._bases: dict[str, tuple[Base, Probe, bytes]] = {}
        self.path = Path(f"/dev/shm/flashtrie-fuzz-{os.getpid()}.trie")

    def base(self, name: str) -> tuple[Base, Probe, bytes]:
        """A base with its probe and answers, from its first use on."""
        if name not in self._bases:
            path = self._folder / f"{name}.trie"
            with flashtrie.open(path) as trie:
                probe = make_probe(trie)
                self._bases[name] = Base(path), probe, answers(trie, probe)
        return self._bases[name]

    def run(self, number: int) -> dict[str, Any]:
        """Make a mutant and use it."""
        name = base_of(number)
        base, probe, expected = self.base(name)
        made = mutant(base, number)
        self.path.write_bytes(made.data)
        self._maps.at_end = number % 2 == 0
        told = {"number": number, "base": name, "change": made.change}
        started = time.monotonic()
        changed = made.data != base.data
        try:
            outcome = use(self.path, probe, expected, changed=changed, sealed=made.sealed)
        except Wrong as error:
            told |= {"outcome": "wrong", "detail": str(error)}
        except Exception as error:
            told |= {"outcome": "error", "detail": f"{type(error).__name__}: {error}"}
        else:
            told["outcome"] = outcome
        return told | {"seconds": time.monotonic() - started}

    def plant(self, fault: str) -> None:
        """Do what a mutant must not."""
        if fault == "hang":
            time.sleep(3600)
        elif fault == "kill":
            os.kill(os.getpid(), 9)
        elif fault == "outside":
            name = next(iter(BASES))
            with flashtrie.open(self._folder / f"{name}.trie") as trie:
                ctypes.string_at(trie.artifact.mapped.ctypes.data + trie.artifact.bytes, 1)
        elif fault == "memory":
            bytearray(2 * _MORE_MEMORY)


def _limit() -> None:
    """No core files, and no more memory than is needed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    """Run mutants FIRST to FIRST + COUNT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--plant", default="")
    parser.add_argument("--write", type=Path, help="only write the first mutant to this file")
    given = parser.parse_args()
    if given.write:
        made = make(given.folder, given.first)
        given.write.write_bytes(made.data)
        _say({"base": base_of(given.first), "change": made.change, "sealed": made.sealed})
        return
    worker = Worker(given.folder)
    worker.base("indexed")
    _limit()
    try:
        for number in range(given.first, given.first + given.count):
            _say({"number": number})
            if given.plant:
                worker.plant(given.plant)
                given.plant = ""
            _say(worker.run(number))
    finally:
        worker.path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
