"""Progress on stderr: a bar with rate and time left on a terminal, else a line every 30 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from flashtrie.cli.output import Output, print_stderr, size

if TYPE_CHECKING:
    from flashtrie.formats.progress import Progress

_LINE_SECONDS = 30.0
_BAR_SECONDS = 0.1


@contextmanager
def progress(output: Output) -> Iterator[Progress | None]:
    """What to hand to the library as `progress`; None with --quiet."""
    if output.quiet:
        yield None
        return
    meter = _Meter()
    show = _bars if sys.stderr is not None and sys.stderr.isatty() else _lines
    done = threading.Event()
    thread = threading.Thread(target=show, args=(meter, done), daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        done.set()
        thread.join()


class _Meter:
    """Keeps the last state of each phase, so that a call costs nothing; a thread shows it."""

    def __init__(self) -> None:
        self.phases: dict[str, _Phase] = {}
        self._first: dict[str, tuple[float, int]] = {}

    def __call__(self, phase: str, done: int, total: int, unit: str) -> None:
        now = time.monotonic()
        started, before = self._first.setdefault(phase, (now, done))
        seconds = max(now - started, 1e-9)
        self.phases[phase] = _Phase(phase, done, total, unit, (done - before) / seconds)


class _Phase(NamedTuple):
    name: str
    done: int
    total: int
    unit: str
    rate: float

    def amount(self) -> str:
        """Such as "3 of 7 rows, 2 rows/s"."""
        of = f" of {_amount(self.total, self.unit)}" if self.total else f" {self.unit}"
        rate = f", {_amount(int(self.rate), self.unit)}/s" if self.rate else ""
        return f"{_amount(self.done, self.unit, bare=True)}{of}{rate}"

    def left(self) -> str:
        if not self.rate or self.done >= self.total:
            return ""
        return f"{_clock((self.total - self.done) / self.rate)} left"


def _lines(meter: _Meter, done: threading.Event) -> None:
    while not done.wait(_LINE_SECONDS):
        if meter.phases:
            phase = list(meter.phases.values())[-1]
            print_stderr(", ".join(filter(None, (f"{phase.name}: {phase.amount()}", phase.left()))))


def _bars(meter: _Meter, done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bars:
        tasks = {}
        ended = False
        while not ended:
            ended = done.wait(_BAR_SECONDS)
            for phase in list(meter.phases.values()):
                if phase.name not in tasks:
                    tasks[phase.name] = bars.add_task(phase.name, amount="", left="")
                bars.update(
                    tasks[phase.name],
                    completed=phase.done,
                    total=phase.total or None,
                    amount=phase.amount(),
                    left=phase.left(),
                )
            bars.refresh()


def _amount(count: int, unit: str, bare: bool = False) -> str:
    if unit == "bytes":
        return size(count)
    return f"{count:,}" if bare else f"{count:,} {unit}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
