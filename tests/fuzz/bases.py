"""Right artifacts that mutants are made of: few keywords, and every section and edge of size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import flashtrie
from tests.conftest import write_parquet
from tests.formats.keysets import TINY, mixed
from tests.reference_builder import Row


class Base(NamedTuple):
    """A key set, options of its build, and how many of 1,000 mutants are made of it."""

    rows: Callable[[], Sequence[Row]]
    options: dict[str, Any]
    share: int


def _plain(*keywords: Sequence[int]) -> list[Row]:
    return [(tuple(keyword), None) for keyword in keywords]


def _mixed() -> list[Row]:
    return mixed(rows=400, vocab=300, seed=1)


def _without_values() -> list[Row]:
    return [(tokens, None) for tokens, _ in mixed(rows=500, vocab=2000, longest=12, seed=2)]


def _prefixes() -> list[Row]:
    """Every node but the last of a chain is terminal; two hundred more share a first token."""
    return _plain(*(range(n) for n in range(1, 40)), *((40, n, n % 7) for n in range(200)))


def _one_level() -> list[Row]:
    """1,024 nodes and ranks: directories end with an entry behind the last block."""
    return [((token,), token * 3) for token in range(1024)]


def _children() -> list[Row]:
    """One node with children over several blocks and entries of the select directory."""
    few = [(1, t, 2) for t in range(0, 1300, 100)]
    many = [(3 + i, t) for i in range(600) for t in (7, 8)]
    return _plain(*((0, t) for t in range(1300)), *few, *many, (2, 7))


def _far_apart() -> list[Row]:
    """Tokens up to the largest, so that ranks are hashed, and values of 64 bits."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 2**32 - 1, (60, 3), np.int64)
    tokens[:20, 0] = 2**32 - 2
    values = rng.integers(-(2**63), 2**63 - 1, len(tokens))
    values[:2] = -(2**63), 2**63 - 1
    return [
        (tuple(row), value) for row, value in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


def _long_tails() -> list[Row]:
    return _plain(*((n, *range(n, n + 700)) for n in range(5)), (9, 9), (9, 9, 9))


def _store() -> list[Row]:
    """A tail store that is most of the file: positions of 16 bits lie behind its end."""
    tokens = np.random.default_rng(4).integers(0, 40, (9, 4000))
    return _plain(*((100 + n, *row) for n, row in enumerate(tokens.tolist())))


def _deep() -> list[Row]:
    return _plain((5,) * 4096, (5,) * 4095, (5, 5, 6), (6,))


BASES = {
    "implicit": Base(_mixed, {"tails": "implicit"}, 160),
    "indexed": Base(_mixed, {"tails": "indexed", "low_bits": 4}, 160),
    "sixteen": Base(_without_values, {"tails": "indexed", "low_bits": 16}, 80),
    "four": Base(_without_values, {"tails": "implicit", "low_bits": 4}, 120),
    "prefixes": Base(_prefixes, {}, 90),
    "one-level": Base(_one_level, {}, 70),
    "children": Base(_children, {"low_bits": 5}, 100),
    "far-apart": Base(_far_apart, {"tails": "implicit"}, 70),
    "long-tails": Base(_long_tails, {"tails": "indexed", "low_bits": 8}, 60),
    "store": Base(_store, {"tails": "indexed", "low_bits": 16}, 20),
    "tiny": Base(lambda: TINY, {"tags": {"kind": "tiny"}}, 40),
    "one-keyword": Base(lambda: _plain([7]), {}, 29),
    "deep": Base(_deep, {}, 1),
}


def write(folder: Path) -> dict[str, Path]:
    """Build all bases as NAME.trie."""
    paths = {}
    for name, base in BASES.items():
        rows = base.rows()
        tokens = [list(row) for row, _ in rows]
        values = [value for _, value in rows if value is not None]
        options: dict[str, Any] = {**base.options, **({"values": "value"} if values else {})}
        source = write_parquet(folder / f"{name}.parquet", tokens, values or None)
        paths[name] = folder / f"{name}.trie"
        flashtrie.build([source], paths[name], **options)
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all bases. A test module takes it as `folder = bases.folder`."""
    place = tmp_path_factory.mktemp("bases")
    write(place)
    return place
