"""Artifacts with a wrong header or payload whose digest and checksums are right all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128_digest

from flashtrie.formats.checksums import chunks, digest, section_checksums
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import padded_bytes

Document = dict[str, Any]
Change = Callable[[Document], object]


def plain(document: Document) -> bytes:
    """The header of a document in canonical spelling, with the digest that it states."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def spell(document: Document) -> bytes:
    """The header of a document in canonical spelling, with its own digest."""
    document["__metadata__"]["digest"] = "0" * 32
    document["__metadata__"]["digest"] = digest(plain(document))
    return plain(document)


def split(data: bytes) -> tuple[Document, bytes]:
    """The document of a header, and what follows the header."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def change_header(data: bytes, change: Change) -> bytes:
    """The file with a changed header that has a right digest."""
    document, payload = split(data)
    change(document)
    return spell(document) + payload


def resealed(data: bytes) -> bytes:
    """`data`, whose payload was changed, with right digests, checksums and header.

    Sections and their sizes are those of the header in `data`.
    """
    document, payload = split(data)
    metadata = document["__metadata__"]
    names = [name for name in document if name != "__metadata__"]
    start = len(data) - len(payload)
    offsets = {name: start + document[name]["data_offsets"][0] for name in names}
    lengths = {name: int(metadata[f"length.{name}"]) for name in names}
    parts = chunks(offsets, lengths)
    rows = b"".join(xxh3_128_digest(data[p.offset : p.offset + p.size]) for p in parts)
    digests = np.frombuffer(rows, np.uint8).reshape(len(parts), -1)
    rows += bytes(padded_bytes("chunk_digests", lengths["chunk_digests"]) - len(rows))
    for name, value in section_checksums(parts, digests).items():
        metadata[f"checksum.{name}"] = value
    metadata["checksum.chunk_digests"] = digest(rows)
    header = spell(document)
    assert len(header) == start
    first = offsets["chunk_digests"]
    return header + data[start:first] + rows + data[first + len(rows) :]


def reseal(path: Path, data: bytes) -> None:
    """Write `data`, whose payload was changed, with right digests, checksums and header."""
    path.write_bytes(resealed(data))


def change_section(path: Path, name: str, element: int, value: int) -> None:
    """Set one element of a section of a right artifact and make the file consistent again."""
    with open_artifact(path) as artifact:
        offset = artifact.offsets[name] + element * artifact.sections[name].itemsize
        dtype = artifact.sections[name].dtype
    data = bytearray(path.read_bytes())
    data[offset : offset + dtype.itemsize] = np.array([value], dtype).tobytes()
    reseal(path, bytes(data))
