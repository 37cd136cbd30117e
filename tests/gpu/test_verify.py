"""The checks on the device find what those on the CPU find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashtrie
from flashtrie.formats.invariants import check
from tests.formats.damage import reseal
from tests.reference_builder import reference_artifact

pytestmark = pytest.mark.gpu

STRUCTURE = ("bitmaps", "directories")
BITMAPS = ("root", "inner", "louds", "terminal", "tail", "tail_long", "store_end", "label_flag",
           "tail_token_flag", "tail_index_flag", "store_flag")  # fmt: skip
SECTIONS = [f"{name}{part}" for name in BITMAPS for part in ("", "_rank", "_select")]


def rows(count: int) -> list[Any]:
    """Keywords with long tails, some of which others begin with; several blocks of all bitmaps."""
    rng = np.random.default_rng(0)
    tokens = rng.zipf(1.2, (count, 9)) % 3000
    lengths = rng.integers(1, 10, count)
    found = {tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)}
    return [(keyword, None) for keyword in sorted(found)]


@pytest.fixture(scope="module", params=["implicit", "indexed"])
def artifact(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernels: None
) -> Path:
    path = tmp_path_factory.mktemp("verify") / "right.trie"
    reference_artifact(path, rows(3000), tails=request.param)
    return path


def wrong(path: Path) -> tuple[set[str], set[str]]:
    """The structure checks that fail: on the CPU, on the device."""
    from flashtrie.gpu.verify import checks_of

    with flashtrie.open(path) as trie:
        on_device = checks_of(trie.artifact, trie.to_device())
        assert all(c.ok for c in on_device if c.name == "checksums")
        both = check(trie.artifact), on_device
    return tuple({c.name for c in one if not c.ok} & set(STRUCTURE) for one in both)  # type: ignore[return-value]


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_wrong_is_found(artifact: Path, tmp_path: Path, section: str) -> None:
    assert wrong(artifact) == (set(), set())
    with flashtrie.open(artifact) as trie:
        array = trie.artifact.sections.get(section)
        if array is None or len(array) == 0:
            return
        start = trie.artifact.offsets[section]
        length, itemsize = len(array), array.itemsize
    rng = np.random.default_rng(len(section))
    path = tmp_path / "wrong.trie"
    found = 0
    places = [0, 1, length // 2, length - 2, length - 1, *rng.integers(0, length, 4).tolist()]
    for place in {min(max(place, 0), length - 1) for place in places}:
        for change in (1, 1 << (8 * itemsize - 1), int(rng.integers(1, 1 << 8 * itemsize - 2))):
            data = bytearray(artifact.read_bytes())
            at = slice(start + place * itemsize, start + (place + 1) * itemsize)
            data[at] = (int.from_bytes(data[at], "little") ^ change).to_bytes(itemsize, "little")
            reseal(path, bytes(data))
            on_cpu, on_device = wrong(path)
            # Where a bitmap is wrong, directories may be held against it or against what is stated.
            sides = (on_cpu, on_device)
            assert on_device == on_cpu or all("bitmaps" in side for side in sides), (place, change)
            found += bool(on_cpu)
    assert found > 0


def test_known_checks_are_not_made_again(artifact: Path, tmp_path: Path) -> None:
    """What the device has found is taken over, and nothing behind it is looked at."""
    from flashtrie.gpu.verify import check_on_device

    with flashtrie.open(artifact) as trie:
        start = trie.artifact.offsets["inner_rank"]
        _, known = check_on_device(trie)
        assert check(trie.artifact, known=known) == check(trie.artifact)
    data = bytearray(artifact.read_bytes())
    data[start + 4] ^= 1
    path = tmp_path / "wrong.trie"
    reseal(path, bytes(data))
    with flashtrie.open(path) as trie:
        _, known = check_on_device(trie)
        made = {c.name: c for c in check(trie.artifact, known=known)}
        assert made["directories"] == next(c for c in known if c.name == "directories")
        assert not made["directories"].ok and "entry" in made["directories"].detail
        assert not made["tree"].ok and made["tree"].detail.startswith("not checked")
