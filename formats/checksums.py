"""xxh3-128 of a file's chunks, with threads: 6 GB/s a core from the page cache.

docs/format.md, Checksums.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from flashtrie.formats.schema import CHUNK_BYTES, DIGEST_BYTES, SECTIONS, padded_bytes

# Chunks that one task hashes: enough to hide the cost of a task, few enough to share out.
_RUN = 16


class Chunk(NamedTuple):
    """A part of a section with a digest of its own: `number` in the section, bytes of the file."""

    section: str
    number: int
    offset: int
    size: int


def chunks(offsets: Mapping[str, int], sizes: Mapping[str, int]) -> list[Chunk]:
    """The chunks in the order of `chunk_digests`. O(chunks).

    `offsets` are bytes from the start of the file, `sizes` the lengths in elements.
    """
    return [
        Chunk(section.name, number, offsets[section.name] + start, min(CHUNK_BYTES, size - start))
        for section in SECTIONS
        if section.name != "chunk_digests"
        for size in [padded_bytes(section.name, sizes[section.name])]
        for number, start in enumerate(range(0, size, CHUNK_BYTES))
    ]


def digest(data: bytes) -> str:
    """xxh3-128 of bytes as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def chunk_digests(
    descriptor: int,
    parts: list[Chunk],
    threads: int,
    done: Callable[[int], None] = lambda size: None,
) -> npt.NDArray[np.uint8]:
    """Digests of chunks of an open file: uint8 [len(parts), 16]. Reads each byte once.

    Holds one chunk a thread in memory. What lies behind the end of the file reads as nothing, so
    a cut file gives other digests. `done` is called from any thread with bytes read.
    """
    result = np.zeros((len(parts), DIGEST_BYTES), np.uint8)
    local = threading.local()

    def run(start: int) -> None:
        if not hasattr(local, "buffer"):
            local.buffer = memoryview(bytearray(CHUNK_BYTES))
        for row in range(start, min(start + _RUN, len(parts))):
            buffer = local.buffer[: parts[row].size]
            read = read_into(descriptor, buffer, parts[row].offset)
            value = xxhash.xxh3_128_digest(buffer[:read])
            result[row] = np.frombuffer(value, np.uint8)
            done(read)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, range(0, len(parts), _RUN)):
            pass
    return result


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill `buffer` from an offset of an open file; the bytes read, fewer at the file's end."""
    read = 0
    while read < len(buffer):
        count = os.preadv(descriptor, [buffer[read:]], offset + read)
        if count == 0:
            break
        read += count
    return read


def section_checksums(parts: list[Chunk], digests: npt.NDArray[np.uint8]) -> dict[str, str]:
    """Checksum of every section but `chunk_digests`, from the digests of its chunks. O(chunks)."""
    hashes = {
        section.name: xxhash.xxh3_128() for section in SECTIONS if section.name != "chunk_digests"
    }
    for part, row in zip(parts, digests, strict=True):
        hashes[part.section].update(row.tobytes())
    return {name: value.hexdigest() for name, value in hashes.items()}
