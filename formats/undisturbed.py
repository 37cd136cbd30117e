"""Steps that no signal may cut in two: to make a file and note that it is ours, to remove it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold the handlers of SIGINT and SIGTERM back until the block ends. Some microseconds.

    They run in the main thread alone, so that elsewhere there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[Any, ...]] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda *what: waiting.append(what))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for what in waiting:
            handlers[what[0]](*what)
