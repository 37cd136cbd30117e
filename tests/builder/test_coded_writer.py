"""Coded arrays go out chunk by chunk: the same as coded whole, in memory that does not grow."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from flashtrie.builder import pack
from flashtrie.builder.pack import CodedWriter, bit_lengths
from flashtrie.formats import bits
from flashtrie.formats.schema import words

PARTS = ("low", "flag", "flag_rank", "high")


class Sections:
    """Where a writer puts arrays, from any thread."""

    def __init__(self, sizes: dict[str, int], rank_dtype: type) -> None:
        self.arrays: dict[str, Any] = {
            name: np.zeros(n, rank_dtype if name.endswith("rank") else np.uint64)
            for name, n in sizes.items()
        }

    def write(self, name: str, element_offset: int, array: Any) -> None:
        target = self.arrays[name]
        assert array.dtype == target.dtype and array.ndim == 1
        assert 0 <= element_offset <= len(target) - len(array)
        target[element_offset : element_offset + len(array)] = array


@pytest.mark.parametrize("rank_dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "count", [0, 1, 63, 65, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 8192]
)
def test_chunks_are_the_whole(monkeypatch, count, threads, rank_dtype):
    """Of arrays with many, few and no high parts, which end at a border of chunks or beside one."""
    monkeypatch.setattr(pack, "CHUNK", 1024)
    rng = np.random.default_rng(count)
    for most, share in ((40, 0.5), (33, 0.01), (17, 1), (4, 1)):
        values = rng.integers(0, 2**4, count)
        large = rng.random(count) < share
        values[large] = rng.integers(0, 2**most, large.sum())
        *arrays, coding = bits.encode(values, 4, rank_dtype)
        sections = Sections(
            {f"x_{part}": len(array) + 7 for part, array in zip(PARTS, arrays, strict=True)},
            rank_dtype,
        )
        at = {f"x_{part}": i + 1 for i, part in enumerate(PARTS)}
        with ThreadPoolExecutor(threads) as pool:
            coder = CodedWriter(sections, "x", rank_dtype, pool, threads)  # type: ignore[arg-type]
            coder.write(np.array_split(values, 5), count, coding, at)
        for (name, begin), expected in zip(at.items(), arrays, strict=True):
            found = sections.arrays[name]
            assert found[begin : begin + len(expected)].tolist() == expected.tolist()
            assert not found[:begin].any() and not found[begin + len(expected) :].any()


def test_memory_does_not_grow_with_the_array():
    """16 million integers, nearly all of them with a high part: 55 MB of sections."""
    count, part = 1 << 24, 1 << 20
    values = np.random.default_rng(0).integers(0, 2**22, part).astype(np.uint32)
    coding = bits.choose_coding(bit_lengths(values) * (count // part), 8)
    sizes = {
        "x_low": words(count * coding.low_bits),
        "x_flag": words(count),
        "x_flag_rank": count // 512 + 1,
        "x_high": words(coding.highs * coding.high_bits),
    }
    assert sum(sizes.values()) * 8 > 40 << 20
    sections = Sections(sizes, np.uint32)
    with ThreadPoolExecutor(2) as pool:
        coder = CodedWriter(sections, "x", np.uint32, pool, 2)  # type: ignore[arg-type]
        tracemalloc.start()
        coder.write((values for _ in range(count // part)), count, coding, dict.fromkeys(sizes, 0))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 25 << 20
