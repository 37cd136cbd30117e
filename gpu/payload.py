"""An artifact's sections in device memory: read, uploaded, and their checksums verified there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import xxhash

from flashtrie.formats.checksums import Chunk, chunks, section_checksums
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.errors import ArtifactError
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import DIGEST_BYTES, SECTIONS
from flashtrie.gpu.compiler import load

# Loads of packed elements and of whole blocks may reach so far behind the last section.
ROOM_BEHIND = 256

_PIECE = 8 << 20  # bytes that are read and uploaded at a time
_READERS = 4  # threads, each with two pinned pieces: 64 MiB in all
_HASHED_HERE = 240  # bytes up to which the device does not hash


def payload_bytes(artifact: Artifact) -> int:
    """Bytes that the sections take on the device."""
    return artifact.bytes - artifact.header_bytes + ROOM_BEHIND


def addresses(artifact: Artifact, payload: Any) -> dict[str, int]:
    """Where each section begins in device memory."""
    base = payload.data.ptr - artifact.header_bytes
    return {section.name: base + artifact.offsets[section.name] for section in SECTIONS}


def upload(artifact: Artifact, progress: Progress | None = None) -> Any:
    """All sections in one uint8 array on the device, as in the file, zeros behind them.

    Threads read pieces with pread into pinned memory while others are on their way: at the speed
    of the disk, the page cache or the bus, whichever is slowest. Raises ArtifactChanged.
    """
    size = artifact.bytes - artifact.header_bytes
    payload = cupy.empty(size + ROOM_BEHIND, np.uint8)
    payload[size:] = 0
    cupy.cuda.get_current_stream().synchronize()
    starts = range(0, size, _PIECE)
    device = cupy.cuda.Device().id
    readers = max(1, min(_READERS, len(starts), usable_cores()))
    done = [0] * readers

    def read(reader: int) -> None:
        cupy.cuda.Device(device).use()
        stream = cupy.cuda.Stream(non_blocking=True)
        piece = min(_PIECE, size)
        pinned = [cupy.cuda.alloc_pinned_memory(piece) for _ in range(2)]
        sent: list[Any] = [None, None]
        for turn, start in enumerate(starts[reader::readers]):
            which = turn % 2
            if sent[which] is not None:
                sent[which].synchronize()
            count = min(_PIECE, size - start)
            buffer = memoryview(pinned[which]).cast("B")[:count]
            artifact.pread_into(buffer, artifact.header_bytes + start)
            cupy.cuda.runtime.memcpyAsync(
                payload.data.ptr + start,
                pinned[which].ptr,
                count,
                cupy.cuda.runtime.memcpyHostToDevice,
                stream.ptr,
            )
            sent[which] = stream.record()
            done[reader] += count
            if progress is not None:
                progress("load", sum(done), size, "bytes")
        stream.synchronize()

    with ThreadPoolExecutor(readers) as pool:
        for _ in pool.map(read, range(readers)):
            pass
    return payload


def chunk_digests(artifact: Artifact, payload: Any) -> tuple[list[Chunk], npt.NDArray[np.uint8]]:
    """The chunks of the payload, and their digests as it is on the device: uint8 [n, 16].

    At the speed of device memory for large files; half a millisecond at least.
    """
    parts = chunks(artifact.offsets, artifact.lengths)
    offsets = cupy.asarray([part.offset - artifact.header_bytes for part in parts], np.uint64)
    sizes = cupy.asarray([part.size for part in parts], np.uint64)
    digests = cupy.zeros((len(parts), 2), np.uint64)
    kernel = load("checksum.cu", "digest_chunks")
    threads = 128
    lanes = 8
    blocks = -(-len(parts) * lanes // threads)
    arguments = (payload, offsets, sizes, digests, np.uint64(len(parts)))
    kernel((blocks,), (threads,), arguments)
    # A canonical digest is big-endian, its high word first.
    result = digests.get()[:, ::-1].astype(">u8").view(np.uint8).reshape(-1, DIGEST_BYTES)
    for row, part in enumerate(parts):
        if part.size <= _HASHED_HERE:
            start = part.offset - artifact.header_bytes
            data = payload[start : start + part.size].get().tobytes()
            result[row] = np.frombuffer(xxhash.xxh3_128_digest(data), np.uint8)
    return parts, result


def damages(artifact: Artifact, payload: Any) -> list[str]:
    """What on the device differs from the header's checksums, by section and chunk."""
    parts, digests = chunk_digests(artifact, payload)
    start = artifact.offsets["chunk_digests"] - artifact.header_bytes
    size = artifact.bytes - artifact.offsets["chunk_digests"]
    held = payload[start : start + size].get()
    found = section_checksums(parts, digests)
    found["chunk_digests"] = xxhash.xxh3_128_hexdigest(held.tobytes())
    result = []
    stored = held[: len(parts) * DIGEST_BYTES].reshape(-1, DIGEST_BYTES)
    unequal = (stored != digests).any(axis=1)
    for name, checksum in found.items():
        if checksum == artifact.checksums[name]:
            continue
        wrong = [p for p, differs in zip(parts, unequal, strict=True) if differs]
        where = next((f", chunk {part.number}" for part in wrong if part.section == name), "")
        result.append(f"section {name}{where}")
    return result


def check_payload(artifact: Artifact, payload: Any) -> None:
    """Raise ArtifactError if what is on the device is not what the header's checksums say."""
    if found := damages(artifact, payload):
        raise ArtifactError(
            "the artifact is damaged",
            artifact.path,
            f"the checksum of {found[0]} differs from the header's",
            "`trie verify` says more",
        )
