"""Proposals of logits that are nearly equal: many have the same log-probability in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


def _proposals(logits: Any, vocab_size: int, top_k: int) -> list[tuple[Any, Any]]:
    """Tokens and log-probabilities on the device, and on the CPU."""
    from flashtrie.cpu.logits import logit_proposals as on_cpu
    from flashtrie.cpu.threads import Workers
    from flashtrie.gpu.logits import logit_proposals

    found = logit_proposals(logits, vocab_size, top_k)
    found.check()
    workers = Workers()
    expected = on_cpu(logits, vocab_size, top_k, workers, 2)
    workers.close()
    return [(found.tokens.get(), found.logprobs.get()), expected]


@pytest.mark.parametrize("span", [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
def test_the_lowest_tokens_of_those_that_round_alike(span: float) -> None:
    rng = np.random.default_rng(70)
    logits = (rng.random((1, 1, 131_072)) * span).astype(np.float32)
    (tokens, logprobs), (wanted, wanted_logprobs) = _proposals(logits, 131_072, 1000)
    np.testing.assert_array_max_ulp(logprobs, wanted_logprobs, 1)
    # The sum of a softmax may differ in its last place, and so may how a few are rounded.
    assert len(set(tokens.ravel()) & set(wanted.ravel())) >= 998
    assert np.count_nonzero(tokens == wanted) >= 990


@pytest.mark.parametrize("above", [0.0, 30.0, 4e4])
def test_columns_that_are_no_tokens_count(above: float) -> None:
    """They lower all log-probabilities: the rest round to a coarser place than their own do."""
    rng = np.random.default_rng(71)
    logits = rng.random((2, 1, 20_011)).astype(np.float32)
    logits[0] *= 1e-4
    logits[:, :, 20_000:] += np.float32(above)
    (tokens, logprobs), (wanted, wanted_logprobs) = _proposals(logits, 20_000, 300)
    np.testing.assert_array_max_ulp(logprobs, wanted_logprobs, 1)
    for row in range(2):
        assert len(set(tokens[row, 0]) & set(wanted[row, 0])) >= 299
