"""A fixture of the same name as the CPU engine's tests have builds tries that search on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.conftest import BuildTrie

# Variants of the kernel in which what is rare in a real search happens all the time: few and wide
# bins, a small stage, cuts that must be narrowed, lists that must be sorted, two waves.
FORCED = {
    "small": {"THREADS": 64, "BINS": 64, "STAGE": 128, "GROUPS": 16, "SMALL_BIN": 4, "ROWS": 2},
    "wide": {"THREADS": 128, "BINS": 64, "STAGE": 128, "SLOT_BITS": 0, "FILTER_BITS": 6},
    "waves": {"WAVE_UNITS": 0, "FIRST_PROPOSALS": 2},
    "not derived": {"DERIVED": 0},
    # What GPUs with less shared memory take.
    "163 KiB": {"STAGE": 2048},
    "99 KiB": {"FILTER_BITS": 14, "GROUPS": 2048, "STAGE": 1024},
}

BuildOnDevice = Callable[..., AbstractContextManager[Any]]


class OnDevice:
    """An open Trie, with searches and batch lookups on the device and all else on the CPU.

    Every search runs twice, and must give the same bits.
    """

    def __init__(self, trie: Any) -> None:
        self.trie = trie
        self.device = trie.to_device()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trie, name)

    def __len__(self) -> int:
        return len(self.trie)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.trie)

    def search(self, *arguments: Any, threads: int | None = None, **options: Any) -> Any:
        return self._twice(self.device.search, *arguments, **options)

    def search_logits(self, *arguments: Any, threads: int | None = None, **options: Any) -> Any:
        return self._twice(self.device.search_logits, *arguments, **options)

    @staticmethod
    def _twice(search: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        first, second = (search(*arguments, **options) for _ in range(2))
        assert_same(first, second)
        return first

    def lookup(self, keywords: Any) -> Any:
        import numpy as np

        offsets = np.cumsum([0, *(len(keyword) for keyword in keywords)])
        flat = [t if 0 <= t < 2**32 - 1 else 2**32 - 1 for keyword in keywords for t in keyword]
        found = self.device.lookup_flat(np.array(flat, np.uint32), offsets)
        assert found.tolist() == self.trie.lookup(keywords).tolist()
        return found


def assert_same(first: Any, second: Any) -> None:
    """Two results are equal bit for bit."""
    for name in ("offsets", "key_ids", "scores", "lengths", "token_offsets", "tokens", "values"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours is None or theirs is None:
            assert ours is theirs, name
        else:
            assert ours.dtype == theirs.dtype, name
            assert ours.tobytes() == theirs.tobytes(), name


FIRST = ("derive.cu", "lookup.cu", "checksum.cu", "verify.cu")


@pytest.fixture(scope="session")
def kernels() -> None:
    """Compile what most tests use, side by side; from the cache where they ran before."""
    from flashtrie.gpu import plan
    from flashtrie.gpu.compiler import load_module

    jobs: list[tuple[str, dict[str, int]]] = [(name, {}) for name in FIRST]
    jobs += [("search.cu", plan.defines(width)) for width in plan.WIDTHS]
    jobs += [("search.cu", plan.defines(1000, changes)) for changes in FORCED.values()]
    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(load_module, *job, job[0] == "search.cu") for job in jobs]:
            job.result()


@pytest.fixture(scope="session")
def build_trie(build_trie: BuildTrie, kernels: None) -> BuildOnDevice:
    """As the fixture of tests/conftest.py; what it gives searches on the device."""

    @contextmanager
    def build(*arguments: Any, **options: Any) -> Iterator[OnDevice]:
        with build_trie(*arguments, **options) as trie:
            yield OnDevice(trie)

    return build
