"""Time of decoding on the device: log-softmax and top K of logits, then the search, by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.gpu.device import DeviceTrie
from flashtrie.gpu.logits import logit_proposals
from flashtrie.gpu.sampling_arguments import Workspace

_WARM_UP = 2


def by_events(
    trie: DeviceTrie,
) -> Callable[[Sequence[Any], int, int, int], npt.NDArray[np.float64]]:
    """A timer of flashtrie.cpu.decode_bench. The logits are on the device before.

    Between the events of a turn nothing waits for the host: a busy device lets it queue ahead.
    """

    def seconds(
        parts: Sequence[Any], beam_width: int, top_k: int, turns: int
    ) -> npt.NDArray[np.float64]:
        held = [(cupy.asarray(part.logits), cupy.asarray(part.end_logprobs)) for part in parts]
        workspace = Workspace()
        busy = cupy.empty(1 << 28, np.uint8)
        times = []
        for turn in range(turns + _WARM_UP):
            logits, end = held[turn % len(held)]
            events = [cupy.cuda.Event() for _ in range(3)]
            for _ in range(8):
                busy.fill(turn)
            events[0].record()
            found = logit_proposals(logits, trie.header.vocab_size, top_k, workspace)
            events[1].record()
            searcher = trie.searcher
            given = searcher.check(found.tokens, found.logprobs, beam_width, None, end, 0.0)
            searcher.prepare(given).launch()
            events[2].record()
            events[2].synchronize()
            pairs = zip(events, events[1:], strict=False)
            times.append([cupy.cuda.get_elapsed_time(*pair) * 1e-3 for pair in pairs])
        return np.array(times[_WARM_UP:])

    return seconds
