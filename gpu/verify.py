"""Checks of an artifact on the device, and lookups there for `trie verify --against`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.formats.errors import ArtifactError
from flashtrie.formats.invariants import HOLDS, Check
from flashtrie.formats.payload import Bitmap, Payload
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import BLOCK_BITS, COLUMN, SECTION
from flashtrie.formats.structure import bitmaps
from flashtrie.gpu.arguments import by_value
from flashtrie.gpu.compiler import load
from flashtrie.gpu.device import DeviceTrie
from flashtrie.gpu.payload import addresses, damages

_THREADS = 256
_MAX_BLOCKS = 1 << 20
_NOWHERE = 0xFFFFFFFFFFFFFFFF
# As in kernels/verify.cu: what can be wrong, with its place, by check; and rules of bitmaps.
_WRONG = {
    "bitmaps": (
        "bits behind the last of {:,} are not zero",
        "the first node is not a first child",
        "the last token ends no tail",
    ),
    "directories": (
        "entry {:,} of its rank directory is wrong",
        "entry {:,} of its select directory is wrong",
        "entry {:,} of its rank directory, which fills the last word, is not zero",
        "entry {:,} of its select directory, which fills the last word, is not zero",
    ),
}
_RULES = {"louds": 1, "store_end": 2}
_FILLED = 4


def check_on_device(trie: Any, progress: Progress | None = None) -> tuple[Any, list[Check]]:
    """Load an open Trie's artifact and check it there: a Trie with its lookups there, and checks.

    Where the artifact is damaged it cannot be loaded: the Trie itself then, and no checks, since
    those of formats.invariants say more. Raises ResourceError.
    """
    try:
        loaded = DeviceTrie(trie.artifact, progress)
    except ArtifactError:
        return trie, []
    return LookupsOnDevice(trie, loaded), checks_of(trie.artifact, loaded)


def checks_of(artifact: Artifact, trie: DeviceTrie) -> list[Check]:
    """Checksums, bitmaps, directories, labels and tails as formats.invariants checks them.

    Of what was loaded from an artifact. Some milliseconds for a hundred million keywords.
    """
    with trie.current():
        return [
            _checksums(artifact, trie),
            *_structure(artifact, trie),
            _of_levels("labels", "check_labels", trie),
            _of_levels("tails", "check_tails", trie),
        ]


class LookupsOnDevice:
    """A Trie whose batch lookups run on the device; all else is the Trie's own."""

    def __init__(self, trie: Any, device: DeviceTrie) -> None:
        """Of an open Trie, and what was loaded from the same artifact."""
        self._trie = trie
        self._device = device

    def __len__(self) -> int:
        """The number of keywords."""
        return len(self._trie)

    def __getattr__(self, name: str) -> Any:
        """What the Trie has."""
        return getattr(self._trie, name)

    def lookup_flat(
        self, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64], threads: int = 1
    ) -> npt.NDArray[np.int64]:
        """As Trie.lookup_flat."""
        return self._device.lookup_flat(tokens, offsets, threads)


def _checksums(artifact: Artifact, trie: DeviceTrie) -> Check:
    found = damages(artifact, trie.payload())
    if found:
        return Check("checksums", False, f"{found[0]} differs from the header's")
    return Check("checksums", True, HOLDS["checksums"])


def _structure(artifact: Artifact, trie: DeviceTrie) -> list[Check]:
    """What formats.structure checks: all bitmaps, and their rank and select directories."""
    at = addresses(artifact, trie.payload())
    maps = list(bitmaps(Payload(artifact)))
    found = cupy.full((len(maps), len(_WRONG)), np.uint64(_NOWHERE), np.uint64)
    ones = cupy.zeros(len(maps), np.uint64)
    for i, bitmap in enumerate(maps):
        _launch(*_bitmap_launch(bitmap, at), found[i], ones[i : i + 1])
    wrong: dict[str, str] = {}
    for bitmap, places, count in zip(maps, found.get().tolist(), ones.get().tolist(), strict=True):
        where = f"{bitmap.where}, {bitmap.name}"
        for (name, causes), place in zip(_WRONG.items(), places, strict=True):
            if place != _NOWHERE:
                wrong.setdefault(name, f"{where}: {causes[place & 3].format(place >> 2)}")
        if count != bitmap.ones:
            cause = f"{count:,} ones where {bitmap.ones:,} are stated"
            wrong.setdefault("bitmaps", f"{where}: {cause}")
    return [Check(name, name not in wrong, wrong.get(name, HOLDS[name])) for name in _WRONG]


def _bitmap_launch(bitmap: Bitmap, at: dict[str, int]) -> tuple[Any, ...]:
    """The kernel for a bitmap, its threads, and its first arguments."""

    def address(name: str, element: int | None) -> np.uint64:
        if element is None:
            return np.uint64(0)
        return np.uint64(at[name] + element * SECTION[name].dtype.itemsize)

    rank = f"{bitmap.name}_rank"
    wide = SECTION[rank].dtype.itemsize == 8
    rules = _RULES.get(bitmap.name, 0) | (_FILLED if SECTION[rank].per_level else 0)
    return (
        "check_bitmap_64" if wide else "check_bitmap_32",
        bitmap.size // BLOCK_BITS + 1,
        address(bitmap.name, bitmap.first),
        address(rank, bitmap.rank),
        address(f"{bitmap.name}_select", bitmap.select),
        np.uint64(bitmap.size),
        np.uint64(bitmap.ones),
        np.uint32(rules),
    )


def _of_levels(name: str, kernel: str, trie: DeviceTrie) -> Check:
    for row in range(1 if name == "labels" else 0, trie.header.levels):
        wrong = cupy.full(1, np.uint64(_NOWHERE), np.uint64)
        nodes = int(trie.header.level_table[row, COLUMN["nodes"]])
        _launch(kernel, nodes, by_value(trie.trie_words), np.uint64(row), wrong)
        place = int(wrong.get()[0])
        if place != _NOWHERE:
            kind = "node" if name == "labels" else "leaf"
            return Check(name, False, f"level {row + 1}, {kind} {place}: not so: {HOLDS[name]}")
    return Check(name, True, HOLDS[name])


def _launch(name: str, threads: int, *given: Any) -> None:
    blocks = min(-(-threads // _THREADS), _MAX_BLOCKS)
    load("verify.cu", name)((blocks,), (_THREADS,), given)
