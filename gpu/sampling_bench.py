"""Times of selection on the GPU: microseconds of a call within a captured graph, rotating inputs.

Correctness first: before a shape is timed, its sets are compared with those of the pivot search.
A copy of device memory is timed in the same run, and PyTorch's sort and topk where it is there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy
import numpy as np

from flashtrie.formats.errors import CheckFailed
from flashtrie.gpu import sampling

ROTATED_BYTES = 256 << 20  # inputs in rotation are several times the L2
MOST_ROTATED = 32
SAMPLE_MILLISECONDS = 4.0
SAMPLES = 7
MODES = {"k": (50, 1.0), "p": (0, 0.9), "k+p": (50, 0.9), "k=1000": (1000, 1.0)}
SHAPES = (
    (1, 32768), (1, 131072), (16, 131072), (64, 131072), (256, 131072), (1, 2200000),
    (16, 2200000),
)  # fmt: skip
# Vocabularies of Llama, Qwen, GPT-OSS and Gemma.
MODELS = ((64, 128256), (64, 151936), (64, 201088), (64, 262144))
KINDS = ("normal", "ties", "peaks", "masked")


class Part(NamedTuple):
    """Some of the figures: each shape with each mode and result, for one kind of logits."""

    shapes: tuple[tuple[int, int], ...]
    modes: tuple[str, ...]
    results: tuple[str, ...]
    kind: str = "power"


_EACH = (("k", "p", "k+p"), ("mask", "token"))
GRID = (
    Part(SHAPES, *_EACH),
    Part(((8, 2200000),), ("k=1000",), ("candidates",)),
    Part(MODELS, ("k+p",), ("mask", "token")),
    *(Part(((64, 131072),), *_EACH, kind) for kind in KINDS),
)


def make_logits(kind: str, rows: int, size: int, seed: int) -> Any:
    """Logits [rows, size] on the device: power, normal, ties (bfloat16 bits), peaks or masked."""
    generator = cupy.random.RandomState(seed)
    if kind == "power":
        ranks = cupy.argsort(generator.random_sample((rows, size)).astype(np.float32), axis=1)
        return (-1.1 * cupy.log(ranks + 1.0)).astype(np.float32)
    x = generator.standard_normal((rows, size)).astype(np.float32)
    if kind == "peaks":
        for row in range(rows):
            x[row, generator.randint(size, size=4)] += 10
    elif kind == "masked":
        x[generator.random_sample((rows, size)) < 0.5] = -1e4
    elif kind == "ties":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x


def matrix(array: Any) -> sampling.Matrix:
    """How the launches see a contiguous CuPy array; uint16 is bfloat16."""
    rows, size = array.shape
    element = 2 if array.dtype == np.uint16 else 0
    return sampling.Matrix(array.data.ptr, size, rows, size, element, array)


def copy_terabytes_per_second() -> float:
    """Bytes read plus written per second of copies of 1 GiB on the device."""
    source, target = (cupy.zeros(1 << 28, np.float32) for _ in range(2))
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for turn in range(12):
        if turn == 2:
            begin.record()
        cupy.copyto(target, source)
    end.record()
    end.synchronize()
    seconds = float(cupy.cuda.get_elapsed_time(begin, end)) / 10 * 1e-3
    return 2 * int(source.nbytes) / seconds / 1e12


def time_graph(calls: list[Callable[[], Any]]) -> float:
    """Seconds of one of these calls, captured one after another and replayed. The median."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for call in calls[:2]:
            call()
        stream.synchronize()
        stream.begin_capture()
        for call in calls:
            call()
        graph = stream.end_capture()
        # Several replays between two events: the launch of a graph takes the host longer than
        # a short one runs.
        replays = 1
        while _replay(graph, stream, replays) < SAMPLE_MILLISECONDS:
            replays *= 2
        times = [_replay(graph, stream, replays) for _ in range(SAMPLES)]
    return float(np.median(times)) / replays / len(calls) * 1e-3


def _replay(graph: Any, stream: Any, replays: int) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    for _ in range(replays):
        graph.launch(stream)
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end))


def measure(
    part: Part, *, seed: int = 0, peers: bool = True, methods: tuple[str, ...] | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each shape, mode and result (mask, candidates, token), and for each peer.

    `methods` as in sampling.select. Raises CheckFailed where a set differs from the pivot search.
    """
    _, modes, results, kind = part
    for rows, size in part.shapes:
        first = make_logits(kind, rows, size, seed)
        rotated = min(MOST_ROTATED, max(2, ROTATED_BYTES // first.nbytes))
        inputs = [first] + [cupy.roll(first, 17 * i + 1, axis=1) for i in range(1, rotated)]
        outputs = [cupy.empty_like(first) for _ in range(min(rotated, 4))]
        for mode in modes:
            _check(first, *MODES[mode], methods)
            for result in results:
                yield _row(inputs, outputs, mode, result, methods, kind)
        if peers and importlib.util.find_spec("torch") and first.dtype == np.float32:
            yield from _peers(inputs, modes, kind)
        del first, inputs, outputs
        cupy.get_default_memory_pool().free_all_blocks()


def _row(
    inputs: list[Any],
    outputs: list[Any],
    mode: str,
    result: str,
    methods: tuple[str, ...] | None,
    kind: str,
) -> dict[str, Any]:
    k, p = MODES[mode]
    rows, size = inputs[0].shape
    workspace = sampling.Workspace()
    width = k or size

    def call(i: int) -> Callable[[], sampling.Selected]:
        wanted = {
            "mask": sampling.Wanted(masked=matrix(outputs[i % len(outputs)])),
            "candidates": sampling.Wanted(width=width),
            "token": sampling.Wanted(seeds=7),
        }[result]
        return lambda: sampling.select(
            matrix(inputs[i]), k, p, 1.0, wanted, workspace=workspace, methods=methods
        )

    seconds = time_graph([call(i) for i in range(len(inputs))])
    moved = inputs[0].nbytes * (2 if result == "mask" else 1)
    extra = rows * (8 + 8 + 1)
    if result == "candidates":
        extra += rows * width * (8 + inputs[0].itemsize)
    return {
        "batch": rows,
        "vocab": size,
        "mode": mode,
        "result": result,
        "logits": kind,
        "microseconds": seconds * 1e6,
        "terabytes_per_second": moved / seconds / 1e12,
        "peak_bytes": workspace.bytes + extra,
    }


def _check(logits: Any, k: int, p: float, methods: tuple[str, ...] | None) -> None:
    masks = []
    for by_pivot in (False, True):
        out = cupy.empty_like(logits)
        wanted = sampling.Wanted(masked=matrix(out))
        sampling.select(matrix(logits), k, p, 1.0, wanted, by_pivot=by_pivot, methods=methods)
        masks.append(out)
    wrong = int((masks[0] != masks[1]).any(axis=1).sum())
    if wrong:
        raise CheckFailed(
            f"{wrong} of {len(logits)} rows differ from the pivot search",
            cause=f"{logits.shape[0]} x {logits.shape[1]}, k = {k}, p = {p}",
        )


def _peers(inputs: list[Any], modes: tuple[str, ...], kind: str) -> Iterator[dict[str, Any]]:
    import torch

    tensors = [torch.from_dlpack(array) for array in inputs]
    for mode in modes:
        k, p = MODES[mode]
        peers: dict[str, Callable[[Any], Any]] = {"sort": lambda x: _sorted_mask(x, k, p)}  # noqa: B023
        if p == 1.0:
            peers["topk"] = lambda x: torch.topk(x, k)  # noqa: B023
        for name, peer in peers.items():
            seconds, extra = _time_torch(peer, tensors)
            moved = tensors[0].nbytes * (2 if name == "sort" else 1)
            yield {
                "batch": inputs[0].shape[0],
                "vocab": inputs[0].shape[1],
                "mode": mode,
                "result": f"PyTorch {name}",
                "logits": kind,
                "microseconds": seconds * 1e6,
                "terabytes_per_second": moved / seconds / 1e12,
                "peak_bytes": extra,
            }


def _sorted_mask(logits: Any, k: int, p: float) -> Any:
    """The sort-based reference of vLLM and Hugging Face."""
    values, indices = logits.sort(dim=-1, descending=False)
    if k:
        values = values.masked_fill(values < values[:, -k].unsqueeze(1), -float("inf"))
    if p < 1:
        drop = values.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
        drop[:, -1] = False
        values = values.masked_fill(drop, -float("inf"))
    return values.scatter(dim=-1, index=indices, src=values)


def _time_torch(peer: Callable[[Any], Any], tensors: list[Any]) -> tuple[float, int]:
    import torch

    tensors = tensors[:4]
    for tensor in tensors[:2]:
        peer(tensor)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    peer(tensors[0])
    extra = torch.cuda.max_memory_allocated() - before
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for tensor in tensors:
            peer(tensor)
    times = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    del graph
    torch.cuda.empty_cache()
    return float(np.median(times[1:])) / len(tensors) * 1e-3, int(extra)
