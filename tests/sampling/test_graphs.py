"""Captured graphs see new logits, seeds and positions; two streams do not disturb each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashtrie import sampling
from tests.sampling.conftest import has_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")]


def _rows(seed: int) -> Any:
    import cupy

    generator = np.random.default_rng(seed)
    return cupy.asarray(generator.standard_normal((8, 40000)).astype(np.float32))


@pytest.mark.hardware
@pytest.mark.parametrize("options", [{"top_k": 50}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.9}])
def test_graph_replay(options: dict[str, Any]) -> None:
    import cupy

    logits, seeds = _rows(0), cupy.arange(8)
    positions = cupy.zeros(8, np.int64)
    memory = sampling.workspace()

    def draw() -> sampling.Tokens:
        return sampling.sample(logits, seeds, positions, **options, check=False, workspace=memory)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        draw()
        stream.synchronize()
        stream.begin_capture()
        drawn = draw()
        graph = stream.end_capture()
    for turn in range(4):
        logits[...] = _rows(turn)
        positions[...] = turn
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        expected = sampling.sample(_rows(turn), cupy.arange(8), positions, **options)
        assert list(drawn.tokens.get()) == list(expected.tokens.get())
        assert list(drawn.logprobs.get()) == list(expected.logprobs.get())


@pytest.mark.hardware
def test_two_streams() -> None:
    import cupy

    rows = [_rows(0), _rows(1)]
    expected = [sampling.mask(part, top_p=0.8) for part in rows]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in rows]
    got: list[list[Any]] = [[], []]
    cupy.cuda.Device().synchronize()
    for _ in range(20):
        for which, stream in enumerate(streams):
            with stream:
                got[which].append(sampling.mask(rows[which], top_p=0.8, check=False))
    cupy.cuda.Device().synchronize()
    for which in range(2):
        for masked in got[which]:
            assert bool((masked == expected[which]).all())


@pytest.mark.hardware
def test_torch_tensors_are_masked_in_place() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        logits = torch.randn(4, 50000, device="cuda").to(dtype)
        k = torch.tensor([5, 50, 500, 5000], device="cuda")
        p = torch.tensor([0.9, 1.0, 0.5, 0.8], device="cuda", dtype=torch.float32)
        expected = sampling.mask(logits.float(), k, p)
        assert sampling.mask(logits, k, p, out=logits) is logits
        assert torch.equal(logits.float(), expected)
