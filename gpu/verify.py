"""Checks of an artifact on the device, and lookups there for `trie verify --against`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.formats.errors import ArtifactError
from flashtrie.formats.invariants import Check
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import COLUMN, PARAMETER, SECTION, Header
from flashtrie.gpu.arguments import by_value
from flashtrie.gpu.compiler import load
from flashtrie.gpu.device import DeviceTrie
from flashtrie.gpu.payload import addresses, damages

_THREADS = 256
_MAX_BLOCKS = 1 << 20
_NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)


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
    """Four checks of formats.invariants, of what was loaded from an artifact.

    checksums: of what is on the device. directories: every rank directory is that of its bitmap.
    labels: in the alphabet, siblings in rising order. tails: they end, within max_length. Some
    milliseconds for a hundred million keywords.
    """
    return [
        _checksums(artifact, trie),
        _directories(artifact, trie),
        _of_levels("labels", "check_labels", trie, "labels are in the alphabet, siblings rise"),
        _of_levels("tails", "check_tails", trie, "tails end, within max_length"),
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
    count = len(artifact.lengths)
    return Check("checksums", True, f"{count} sections are as the header states")


def _directories(artifact: Artifact, trie: DeviceTrie) -> Check:
    at = addresses(artifact, trie.payload())
    checked = 0
    for where, words, directory, wide, bits, ones in _bitmaps(artifact, at):
        if bits == 0:
            continue
        wrong = cupy.full(1, _NOWHERE, np.uint64)
        name = "check_directory_64" if wide else "check_directory_32"
        given = (*map(np.uint64, (words, directory, bits, ones)), wrong)
        _launch(name, bits // 512 + 1, given)
        place = int(wrong.get()[0])
        if place != _NOWHERE:
            return Check("directories", False, f"{where}: entry {place} is wrong")
        checked += 1
    return Check("directories", True, f"{checked} rank directories are those of their bitmaps")


def _bitmaps(
    artifact: Artifact, at: dict[str, int]
) -> Iterator[tuple[str, int, int, bool, int, int]]:
    """Where each bitmap with a rank directory is, its directory, whether wide, bits and ones."""
    header = artifact.header
    level_1 = int(header.level_table[0, COLUMN["nodes"]])
    yield "root", at["root"], at["root_rank"], False, header.alphabet_size, level_1
    flags = header.store_tokens if header.store.highs else 0
    yield "store_flag", at["store_flag"], at["store_flag_rank"], True, flags, header.store.highs
    ends = header.store_tokens if header.tails == "implicit" else 0
    yield "store_end", at["store_end"], at["store_end_rank"], True, ends, header.store_tails
    for row in range(header.levels):
        for name, (bits, ones) in _level_bitmaps(header, row).items():
            words, directory = (
                at[section]
                + int(artifact.parameters[row, PARAMETER[f"{section}_offset"]])
                * SECTION[section].dtype.itemsize
                for section in (name, f"{name}_rank")
            )
            yield f"level {row + 1}, {name}", words, directory, False, bits, ones


def _level_bitmaps(header: Header, row: int) -> dict[str, tuple[int, int]]:
    """Bits and ones of the bitmaps of a level."""
    table = header.level_table
    count = {name: int(table[row, column]) for name, column in COLUMN.items()}
    below = int(table[row + 1, COLUMN["nodes"]]) if row + 1 < header.levels else 0

    def flags(name: str, elements: int) -> tuple[int, int]:
        highs = count[f"{name}_highs"]
        return (elements if highs else 0), highs

    return {
        "label_flag": flags("label", count["nodes"] if row else 0),
        "inner": (count["nodes"], count["inner"]),
        "louds": (below, count["inner"]),
        "terminal": (count["inner"], count["terminals"]),
        "tail": (count["nodes"] - count["inner"], count["tails"]),
        "tail_long": (count["tails"], count["long_tails"]),
        "tail_token_flag": flags("tail_token", count["tails"] - count["long_tails"]),
        "tail_index_flag": flags("tail_index", count["long_tails"]),
    }


def _of_levels(name: str, kernel: str, trie: DeviceTrie, right: str) -> Check:
    for row in range(1 if name == "labels" else 0, trie.header.levels):
        wrong = cupy.full(1, _NOWHERE, np.uint64)
        nodes = int(trie.header.level_table[row, COLUMN["nodes"]])
        _launch(kernel, nodes, (by_value(trie.trie_words), np.uint64(row), wrong))
        place = int(wrong.get()[0])
        if place != _NOWHERE:
            kind = "node" if name == "labels" else "leaf"
            return Check(name, False, f"level {row + 1}, {kind} {place}: not so: {right}")
    return Check(name, True, right)


def _launch(name: str, threads: int, given: tuple[Any, ...]) -> None:
    blocks = min(-(-threads // _THREADS), _MAX_BLOCKS)
    load("verify.cu", name)((blocks,), (_THREADS,), given)
