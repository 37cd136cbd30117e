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
    # What changes from turn to turn: nothing, each of the three alone, and all of them.
    turns = [(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 5), (2, 1, 5), (3, 2**40, 7)]
    tokens = []
    for rows, seed, position in turns:
        logits[...] = _rows(rows)
        seeds[...] = cupy.arange(8) + 100 * seed
        positions[...] = position
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        fresh = cupy.arange(8) + 100 * seed
        expected = sampling.sample(_rows(rows), fresh, cupy.full(8, position), **options)
        tokens.append(drawn.tokens.get().tolist())
        assert tokens[-1] == expected.tokens.get().tolist()
        assert list(drawn.logprobs.get()) == list(expected.logprobs.get())
    assert tokens[0] == tokens[1]
    assert all(tokens[i] != tokens[i + 1] for i in range(1, len(turns) - 1))


@pytest.mark.hardware
def test_a_graph_writes_into_nothing_but_its_own() -> None:
    import cupy

    logits, seeds = _rows(0), cupy.arange(8)
    memory = sampling.workspace()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for captured in (False, True):
            if captured:
                stream.begin_capture()
            drawn = sampling.sample(logits, seeds, top_k=50, check=False, workspace=memory)
        graph = stream.end_capture()
        # What the capture gave back to the pool of its stream would be among these.
        others = [cupy.full(size, 0x5A, np.uint8) for size in (64, 512, 1024, 4096) * 50]
        graph.launch(stream)
        stream.synchronize()
        assert all(bool((other == 0x5A).all()) for other in others)
    assert int(drawn.tokens.get().min()) >= 0


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
