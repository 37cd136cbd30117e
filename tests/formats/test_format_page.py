"""docs/format.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from flashtrie.formats import schema
from flashtrie.formats.header import MAX_HEADER_BYTES
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import (
    DTYPE_NAMES,
    LEVEL_COLUMNS,
    SECTIONS,
    rank_entries,
    select_entries,
)
from tests.formats.damage import split
from tests.formats.keysets import TINY
from tests.reference_builder import reference_artifact

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()


def table(*columns: str) -> list[list[str]]:
    """The rows of the page's table with these columns, cells without backquotes."""
    lines = PAGE.splitlines()
    first = lines.index(f"| {' | '.join(columns)} |".replace("|  |", "| |")) + 2
    rows: list[list[str]] = []
    for line in lines[first:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return rows


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.trie"
    reference_artifact(path, TINY)
    return path


def test_sections():
    rows = [row[:3] for row in table("section", "dtype", "per level", "holds")]
    assert rows == [
        [section.name, DTYPE_NAMES[section.dtype], "yes" if section.per_level else "no"]
        for section in SECTIONS
    ]


def test_level_table():
    rows = table("column", "name", "meaning")
    assert [row[1] for row in rows] == list(LEVEL_COLUMNS)
    assert [int(row[0]) for row in rows] == list(range(len(LEVEL_COLUMNS)))
    assert f"D rows of {len(LEVEL_COLUMNS)} columns" in PAGE


def test_metadata(tiny):
    page = {key for cell, *_ in table("key", "value") for key in cell.split(", ")}
    document, _ = split(tiny.read_bytes())
    written = {
        re.sub(r"^(length|checksum)\..*", r"\1.NAME", key) for key in document["__metadata__"]
    }
    assert page == written | {"tag.KEY"}


def test_constants():
    assert f"format version {schema.VERSION}" in PAGE.splitlines()[0]
    for text in (
        f"`n div {schema.BLOCK_BITS} + 1`",
        f"`(m - 1) div {schema.SELECT_ONES} + 2`",
        f"({schema.MIN_LOW_BITS} to {schema.MAX_LOW_BITS}; 0 where",
        f"1 to {schema.MAX_LENGTH:,} tokens",
        f"multiple of {schema.ALIGNMENT}",
        "chunks of 1 MiB",
        "of more than 1 MiB, length field and padding included",
    ):
        assert text in PAGE, text
    assert schema.CHUNK_BYTES == MAX_HEADER_BYTES == 1 << 20
    assert [rank_entries(n) for n in (0, 1, 511, 512)] == [0, 1, 1, 2]
    assert [select_entries(m) for m in (0, 1, 512, 513)] == [0, 2, 2, 3]


def test_tiny_header(tiny):
    data = tiny.read_bytes()
    assert f"The file has {len(data):,} bytes." in PAGE
    length = int.from_bytes(data[:8], "little")
    assert f"the header length {length:,} (`{data[:8].hex(' ')}`)" in PAGE
    begin = re.search(r"then `(\{.*?)`\nand so on", PAGE)
    assert begin and data[8:].startswith(begin[1].encode())
    assert f"tensors begin at byte {8 + length:,}." in PAGE
    metadata = split(data)[0]["__metadata__"]
    stated = {row[0]: row[1] for row in table("key", "value", "")}
    assert stated == {
        key: value
        for key, value in metadata.items()
        if not key.startswith(("length.", "checksum."))
    }


def test_tiny_sections(tiny):
    rows = table("section", "begins", "bytes", "")
    with open_artifact(tiny) as artifact:
        names = [name for name, array in artifact.sections.items() if len(array)]
        assert [row[0] for row in rows] == names
        for name, begins, octets, _ in rows:
            array = artifact.sections[name]
            assert int(begins) == artifact.offsets[name] - artifact.header_bytes
            if name == "level_table":
                assert octets == f"{artifact.header.levels} rows of {len(LEVEL_COLUMNS)}"
            elif name == "chunk_digests":
                assert octets == f"{len(array) // 16} digests"
            else:
                expected = np.concatenate(
                    [np.frombuffer(bytes.fromhex(group), array.dtype) for group in octets.split()]
                )
                assert (array == expected).all() and len(array) == len(expected)
        assert dict(zip(LEVEL_COLUMNS, artifact.header.level_table[0], strict=True)) == dict(
            dict.fromkeys(LEVEL_COLUMNS, 0),
            nodes=2,
            inner=1,
            terminals=1,
            tails=1,
            long_tails=1,
            tail_index_low_bits=4,
        )


def test_tiny_words(tiny, tmp_path):
    """The sizes that the page gives for the two kinds of tails."""
    totals = {}
    for kind in ("implicit", "indexed"):
        path = tmp_path / f"{kind}.trie"
        reference_artifact(path, TINY, tails=kind)
        with open_artifact(path) as artifact:
            totals[kind] = sum(
                schema.padded_bytes(name, len(array))
                for name, array in artifact.sections.items()
                if name.startswith(("tail_index", "store"))
            )
    assert f"{totals['indexed']} bytes in `tail_index_low`" in PAGE
    assert f"implicit {totals['implicit']}, with" in PAGE
