"""The checks on the device find what those on the CPU find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashtrie
from flashtrie.formats.invariants import check
from flashtrie.formats.payload import Bitmap, Payload
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import BLOCK_BITS, select_entries
from flashtrie.formats.structure import bitmaps
from tests.formats.damage import reseal
from tests.reference_builder import reference_artifact

pytestmark = pytest.mark.gpu

STRUCTURE = ("bitmaps", "directories")


def rows() -> list[Any]:
    """Keywords with long tails, some of which others begin with; several blocks of all bitmaps."""
    rng = np.random.default_rng(0)
    tokens = rng.zipf(1.2, (3000, 9)) % 3000
    lengths = rng.integers(1, 10, len(tokens))
    found = {tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)}
    # As many inner nodes of a level as leave a select directory an odd number of entries.
    found |= {(5000 + i, j) for i in range(500) for j in range(2)}
    return [(keyword, None) for keyword in sorted(found)]


@pytest.fixture(scope="module", params=["implicit", "indexed"])
def right(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernels: None
) -> Path:
    path = tmp_path_factory.mktemp("verify") / "right.trie"
    reference_artifact(path, rows(), tails=request.param)
    return path


def wrong(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The structure checks that fail, with their details: on the CPU, on the device."""
    from flashtrie.gpu.verify import checks_of

    with flashtrie.open(path) as trie:
        on_device = checks_of(trie.artifact, trie.to_device())
        assert all(c.ok for c in on_device if c.name == "checksums")
        on_cpu = check(trie.artifact)
    found = [{c.name: c.detail for c in one if not c.ok} for one in (on_cpu, on_device)]
    first, second = ({n: d[n] for n in STRUCTURE if n in d} for d in found)
    return first, second


def sections_of(artifact: Artifact) -> list[str]:
    """The bitmaps that have bits, and their directories."""
    names = []
    for bitmap in bitmaps(Payload(artifact)):
        names.append(bitmap.name)
        names += [f"{bitmap.name}_rank"] * (bitmap.rank is not None)
        names += [f"{bitmap.name}_select"] * (bitmap.select is not None)
    return list(dict.fromkeys(names))


def flipped(artifact: Artifact, section: str) -> Iterator[bytes]:
    """The file with one element changed: at both ends and in between, in low and high bits."""
    data = Path(artifact.path).read_bytes()
    array, start = artifact.sections[section], artifact.offsets[section]
    length, itemsize = len(array), array.itemsize
    rng = np.random.default_rng(len(section))
    places = [0, 1, length // 2, length - 2, length - 1, *rng.integers(0, length, 4).tolist()]
    for place in sorted({min(max(place, 0), length - 1) for place in places}):
        for change in (1, 1 << (8 * itemsize - 1), int(rng.integers(1, 1 << 8 * itemsize - 2))):
            made = bytearray(data)
            at = slice(start + place * itemsize, start + (place + 1) * itemsize)
            made[at] = (int.from_bytes(made[at], "little") ^ change).to_bytes(itemsize, "little")
            yield bytes(made)


def moved(artifact: Artifact, bitmap: Bitmap) -> Iterator[tuple[str, bytes]]:
    """The file with a one of a bitmap moved within its block, so that all counts stay."""
    data = Path(artifact.path).read_bytes()
    start = artifact.offsets[bitmap.name] + bitmap.first * 8
    room = -(-bitmap.size // 64) * 8
    whole = np.unpackbits(np.frombuffer(data[start : start + room], np.uint8), bitorder="little")
    last = (bitmap.size - 1) // BLOCK_BITS * BLOCK_BITS
    zeros = np.flatnonzero(whole[: bitmap.size] == 0)
    ones = np.flatnonzero(whole[: bitmap.size])

    def with_bits(off: int, on: int) -> bytes:
        bits = whole.copy()
        assert bits[off] and not bits[on]
        bits[off], bits[on] = 0, 1
        packed: bytes = np.packbits(bits, bitorder="little").tobytes()
        return data[:start] + packed + data[start + room :]

    if whole[0] and (zeros < BLOCK_BITS).any():
        yield "first", with_bits(0, int(zeros[0]))
    if whole[bitmap.size - 1] and (zeros >= last).any():
        yield "last", with_bits(bitmap.size - 1, int(zeros[-1]))
    if bitmap.size % 64 and (ones >= last).any():
        yield "behind", with_bits(int(ones[-1]), bitmap.size)


def test_whole(right: Path) -> None:
    assert wrong(right) == ({}, {})
    with flashtrie.open(right) as trie:
        maps = list(bitmaps(Payload(trie.artifact)))
    assert any(m.name == "louds" and select_entries(m.ones) % 2 for m in maps)


def test_a_changed_element_is_found(right: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.trie"
    with flashtrie.open(right) as trie:
        sections = sections_of(trie.artifact)
        assert len(sections) > 15
        for section in sections:
            found = 0
            for data in flipped(trie.artifact, section):
                reseal(path, data)
                on_cpu, on_device = wrong(path)
                found += bool(on_cpu)
                # Where a bitmap has other ones than are stated, directories are held against it
                # here and against what is stated there.
                if "bitmaps" in on_cpu:
                    assert "bitmaps" in on_device, (section, on_cpu)
                else:
                    assert on_device.keys() == on_cpu.keys(), (section, on_cpu)
            assert found, section


def test_a_moved_one_is_found(right: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.trie"
    found = set()
    with flashtrie.open(right) as trie:
        for bitmap in bitmaps(Payload(trie.artifact)):
            for which, data in moved(trie.artifact, bitmap):
                reseal(path, data)
                on_cpu, on_device = wrong(path)
                assert on_device.keys() == on_cpu.keys(), (bitmap, which, on_cpu, on_device)
                if on_cpu:
                    found.add((which, bitmap.name if which != "behind" else ""))
    assert found == {("first", "louds"), ("last", "store_end"), ("behind", "")}


def test_a_filler_is_found(right: Path, tmp_path: Path) -> None:
    """Behind an odd number of a level's entries."""
    path = tmp_path / "wrong.trie"
    with flashtrie.open(right) as trie:
        artifact = trie.artifact
        data = right.read_bytes()
        maps = list(bitmaps(Payload(artifact)))
        odd = next(m for m in maps if m.name == "louds" and select_entries(m.ones) % 2)
        assert odd.select is not None
        at = artifact.offsets["louds_select"] + (odd.select + select_entries(odd.ones)) * 4
        assert data[at : at + 4] == bytes(4)
        reseal(path, data[:at] + b"\1" + data[at + 1 :])
        on_cpu, on_device = wrong(path)
        assert on_cpu.keys() == on_device.keys() == {"directories"}
        assert "fills the last word" in on_device["directories"]


def test_wrong_at_both_ends(right: Path, tmp_path: Path) -> None:
    """A bitmap and its directory are told apart."""
    path = tmp_path / "wrong.trie"
    with flashtrie.open(right) as trie:
        start = trie.artifact.offsets["store_end"]
        size = trie.artifact.header.store_tokens
        data = bytearray(right.read_bytes())
    data[start + (size - 1) // 8] ^= 1 << (size - 1) % 8
    zero = next(i for i in range(size) if not data[start + i // 8] >> i % 8 & 1)
    data[start + zero // 8] |= 1 << zero % 8
    reseal(path, bytes(data))
    on_cpu, on_device = wrong(path)
    assert "bitmaps" in on_cpu and on_device.keys() == on_cpu.keys()


def test_known_checks_are_not_made_again(right: Path, tmp_path: Path) -> None:
    """What the device has found is taken over, and nothing behind it is looked at."""
    from flashtrie.gpu.verify import check_on_device

    with flashtrie.open(right) as trie:
        start = trie.artifact.offsets["inner_rank"]
        _, known = check_on_device(trie)
        assert check(trie.artifact, known=known) == check(trie.artifact)
    data = bytearray(right.read_bytes())
    data[start + 4] ^= 1
    path = tmp_path / "wrong.trie"
    reseal(path, bytes(data))
    with flashtrie.open(path) as trie:
        _, known = check_on_device(trie)
        made = {c.name: c for c in check(trie.artifact, known=known)}
        assert made["directories"] == next(c for c in known if c.name == "directories")
        assert not made["directories"].ok and "entry" in made["directories"].detail
        assert not made["tree"].ok and made["tree"].detail.startswith("not checked")
