"""What is shown while a command runs."""

from __future__ import annotations

import sys
import time

import pytest

from flashtrie.cli import progress as module
from flashtrie.cli.output import Output
from flashtrie.cli.progress import progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_an_amount_has_rate_and_time_left(clock):
    meter = module._Meter()
    meter("sort", 0, 3000, "rows")
    assert meter.phases["sort"].amount() == "0 of 3,000 rows"
    assert meter.phases["sort"].left() == ""
    clock.now = 10
    meter("sort", 1000, 3000, "rows")
    assert meter.phases["sort"].amount() == "1,000 of 3,000 rows, 100 rows/s"
    assert meter.phases["sort"].left() == "0:20 left"
    clock.now = 30
    meter("sort", 3000, 3000, "rows")
    assert meter.phases["sort"].left() == ""


def test_bytes_and_unknown_totals(clock):
    meter = module._Meter()
    meter("read", 1 << 20, 1 << 30, "bytes")
    clock.now = 1
    meter("read", 3 << 20, 1 << 30, "bytes")
    assert meter.phases["read"].amount() == "3 MiB of 1 GiB, 2 MiB/s"
    meter("draw", 7, 0, "queries")
    assert meter.phases["draw"].amount() == "7 queries"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01")]
)
def test_clock(seconds, text):
    assert module._clock(seconds) == text


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capfd):
    monkeypatch.setattr(module, "_LINE_SECONDS", 0.05)
    with progress(Output(json=False, quiet=False)) as report:
        assert report is not None
        report("count", 1, 4, "rows")
        report("sort", 2, 4, "rows")
        shown = ""
        for _ in range(100):
            time.sleep(0.05)
            shown += capfd.readouterr().err
            if shown:
                break
    assert shown.splitlines()[0].startswith("sort: 2 of 4 rows")
    assert "count" not in shown


def test_a_bar_on_a_terminal(monkeypatch):
    """The bar itself is Rich's."""
    shown = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module, "_bars", lambda meter, done: shown.append(done.wait(10)))
    with progress(Output(json=True, quiet=False)) as report:
        assert report is not None
    assert shown == [True]


def test_bars_end_with_the_last_state(capfd):
    import threading

    meter = module._Meter()
    meter("sort", 4, 4, "rows")
    done = threading.Event()
    done.set()
    module._bars(meter, done)
    assert "4 of 4 rows" in capfd.readouterr().err


def test_quiet_is_quiet():
    with progress(Output(json=False, quiet=True)) as report:
        assert report is None
