"""Work over threads: compiled code runs without the GIL."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_MOST_THREADS = 1024  # the executor starts one only when all others are busy


class Workers:
    """Threads that are kept from call to call. Any number of threads may call."""

    def __init__(self) -> None:
        """Start none yet."""
        self._start_anew()
        _all.add(self)

    def _start_anew(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, work: Callable[[int], None], count: int, threads: int) -> None:
        """Call work(i) for i = 0 to count - 1 on `threads` threads, the caller's among them.

        Each takes the next number that is free. Of errors, that of the lowest number is raised.
        """
        threads = min(threads, count)
        numbers = itertools.count()  # next() on it is atomic
        errors: dict[int, BaseException] = {}

        def take() -> None:
            for i in numbers:
                if i >= count or errors:
                    return
                try:
                    work(i)
                except BaseException as error:
                    errors[i] = error

        others = []
        if threads > 1:
            with self._lock:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(_MOST_THREADS, "flashtrie")
                others = [self._executor.submit(take) for _ in range(threads - 1)]
        take()
        for other in others:
            other.result()
        if errors:
            raise errors[min(errors)]

    def close(self) -> None:
        """End the threads once their work is done."""
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown(wait=False)
                self._executor = None


# Of this process. A child that was forked has none of its parent's threads, which an executor from
# there would wait for without end, and a lock may be held by one of them.
_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _after_fork() -> None:
    for workers in _all:
        workers._start_anew()


os.register_at_fork(after_in_child=_after_fork)
