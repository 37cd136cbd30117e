"""Watches a worker: a crash or a hang is an outcome, and the next mutant has a new worker."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.exercise import ALLOWED

ROOT = Path(__file__).parents[2]
START_SECONDS = 120.0  # until the first mutant: on a new machine it compiles


@dataclass
class Outcomes:
    """How many mutants ended how, and those that ended as none may."""

    counts: Counter[str] = field(default_factory=Counter)
    by_change: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, told: dict[str, Any]) -> None:
        """Count what a worker told of a mutant."""
        outcome = told["outcome"]
        self.counts[outcome] += 1
        self.slowest = max(self.slowest, told.get("seconds", 0.0))
        if outcome not in ALLOWED:
            self.findings.append(told)
        else:
            self.by_change[told["change"].split(" ")[0].rstrip(":,"), outcome] += 1


def run(
    folder: Path,
    first: int,
    count: int,
    *,
    limit: float = 30.0,
    plant: str = "",
    environment: dict[str, str] | None = None,
) -> Outcomes:
    """Mutants `first` to `first + count` of the bases in `folder`, each within `limit` seconds."""
    outcomes = Outcomes()
    stop = first + count
    while first < stop:
        words = [str(folder), str(first), str(stop - first), "--plant", plant]
        for told in _watch(words, first, limit, os.environ | (environment or {})):
            outcomes.add(told)
            first = told["number"] + 1
        plant = ""
    return outcomes


def _watch(
    words: list[str], first: int, limit: float, environment: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """What a worker tells of its mutants; where it dies, what it died of, and no more."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.worker", *words],
        cwd=ROOT,
        env=environment | {"PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdout and worker.stderr
    number = first
    try:
        end = START_SECONDS
        for line in _lines(worker.stdout.fileno(), lambda: end):
            told = json.loads(line)
            number = told["number"]
            end = limit
            if "outcome" in told:
                yield told
                number += 1
        worker.wait(timeout=10)
    except TimeoutError:
        worker.kill()
        yield {"number": number, "outcome": "hang"}
        return
    finally:
        worker.kill()
        worker.wait()
        noise = worker.stderr.read().decode(errors="replace")
        worker.stdout.close()
        worker.stderr.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"/dev/shm/flashtrie-fuzz-{worker.pid}.trie")
    if worker.returncode:
        code = worker.returncode
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        yield {"number": number, "outcome": "crash", "detail": f"{name}\n{noise[-3000:]}"}


def _lines(descriptor: int, seconds: Any) -> Iterator[bytes]:
    """Lines of a pipe; TimeoutError where the next takes longer than `seconds()`."""
    waiting = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        end = time.monotonic() + seconds()
        while True:
            if not selector.select(max(end - time.monotonic(), 0)):
                raise TimeoutError
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            yield from lines
            if lines:
                end = time.monotonic() + seconds()
