"""Artifacts with a wrong header or payload whose digest and checksums are right all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flashtrie.formats.checksums import chunk_digests, chunks, digest, section_checksums
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import padded_bytes

Document = dict[str, Any]
Change = Callable[[Document], object]


def spell(document: Document) -> bytes:
    """The header of a document in canonical spelling, with its own digest."""

    def plain() -> bytes:
        text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        return len(text).to_bytes(8, "little") + text

    document["__metadata__"]["digest"] = "0" * 32
    document["__metadata__"]["digest"] = digest(plain())
    return plain()


def split(data: bytes) -> tuple[Document, bytes]:
    """The document of a header, and what follows the header."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def change_header(data: bytes, change: Change) -> bytes:
    """The file with a changed header that has a right digest."""
    document, payload = split(data)
    change(document)
    return spell(document) + payload


def reseal(path: Path, data: bytes) -> None:
    """Write `data`, whose payload was changed, with right digests, checksums and header.

    Sections and their sizes are those of the header in `data`.
    """
    document, payload = split(data)
    metadata = document["__metadata__"]
    names = sorted(
        (name for name in document if name != "__metadata__"),
        key=lambda name: document[name]["data_offsets"],
    )
    start = len(data) - len(payload)
    offsets = {name: start + document[name]["data_offsets"][0] for name in names}
    lengths = {name: int(metadata[f"length.{name}"]) for name in names}
    path.write_bytes(data)
    with path.open("r+b") as file:
        parts = chunks(offsets, lengths)
        digests = chunk_digests(file.fileno(), parts, 1)
        rows = digests.tobytes()
        rows += bytes(padded_bytes("chunk_digests", lengths["chunk_digests"]) - len(rows))
        file.seek(offsets["chunk_digests"])
        file.write(rows)
        for name, value in section_checksums(parts, digests).items():
            metadata[f"checksum.{name}"] = value
        metadata["checksum.chunk_digests"] = digest(rows)
        header = spell(document)
        assert len(header) == start
        file.seek(0)
        file.write(header)


def change_section(path: Path, name: str, element: int, value: int) -> None:
    """Set one element of a section of a right artifact and make the file consistent again."""
    with open_artifact(path) as artifact:
        offset = artifact.offsets[name] + element * artifact.sections[name].itemsize
        dtype = artifact.sections[name].dtype
    data = bytearray(path.read_bytes())
    data[offset : offset + dtype.itemsize] = np.array([value], dtype).tobytes()
    reseal(path, bytes(data))
