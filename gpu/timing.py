"""Time of searches on the device alone, by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.gpu.device import DeviceTrie
from flashtrie.gpu.search import Prepared

_WARM_UP = 4
_TOGETHER = 1000  # launches that are queued before the time is looked at


def prepare(trie: DeviceTrie, batch: Any, beam_width: int) -> Prepared:
    """Bring a batch to the device: anything with tokens, logprobs and end_logprobs."""
    searcher = trie.searcher
    arrays = (batch.tokens, batch.logprobs)
    given = searcher.check(*arrays, beam_width, None, batch.end_logprobs, 0.0)
    return searcher.prepare(given)


class ByEvents:
    """A timer of flashtrie.cpu.bench: seconds of launches, one behind the other.

    The batches are on the device before, and take turns, so that a launch finds little of its own
    in the caches. Between two events there is one launch, and nothing waits for the host.
    """

    def __init__(self, trie: DeviceTrie) -> None:
        """Of what is loaded."""
        self._trie = trie

    def __call__(
        self, parts: Sequence[Any], beam_width: int, calls: int, over: Callable[[int], bool]
    ) -> npt.NDArray[np.float64]:
        """Seconds of `calls` launches, or of fewer where `over` says so."""
        searches = [prepare(self._trie, part, beam_width) for part in parts]
        seconds: list[float] = []
        while len(seconds) < calls and not over(len(seconds)):
            count = min(_TOGETHER, calls - len(seconds))
            seconds += _launch(searches, len(seconds), count)
        return np.array(seconds)


def _launch(searches: Sequence[Prepared], first: int, count: int) -> list[float]:
    """Seconds of `count` launches, from number `first` on; some before them are not timed."""
    events = [cupy.cuda.Event() for _ in range(count + 1)]
    for i in range(first - _WARM_UP, first):
        searches[i % len(searches)].launch()
    events[0].record()
    for i in range(count):
        searches[(first + i) % len(searches)].launch()
        events[i + 1].record()
    events[-1].synchronize()
    pairs = zip(events, events[1:], strict=False)
    return [cupy.cuda.get_elapsed_time(*pair) * 1e-3 for pair in pairs]
