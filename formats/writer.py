"""Write an artifact: into a file beside the output, renamed over it once it is on disk."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats import header as headers
from flashtrie.formats.checksums import chunk_digests, chunks, digest, section_checksums
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.outputs import Replacement
from flashtrie.formats.relations import contradiction
from flashtrie.formats.schema import SECTION, SECTIONS, Header, sizes

_UNKNOWN = {section.name: "0" * 32 for section in SECTIONS}  # as long as a real checksum


class ArtifactWriter:
    """Sections are reserved by the counts of `header` and filled in any order, from any threads.

    What is not written is zero. `level_table` and `chunk_digests` are written here. Nothing is seen
    at `path` before `commit`; without it nothing is left.

    Raises OutputError where `path` cannot be written, or exists and `force` is not set, and
    ResourceError where the disk has no room, both before any work; UsageError where tags do not
    fit; ValueError where the counts of `header` contradict each other, a mistake of the caller.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Header,
        *,
        force: bool = False,
        threads: int | None = None,
    ) -> None:
        """Reserve the file. `threads` compute the checksums; all cores if left out."""
        if problem := contradiction(header):
            raise ValueError(f"the counts of the header contradict each other: {problem}")
        self.path = os.fspath(path)
        self.lengths = sizes(header)
        self._header = header
        self._threads = threads or usable_cores()
        self._header_bytes = len(headers.encode(header, _UNKNOWN))
        self.offsets = headers.file_offsets(self._header_bytes, self.lengths)
        self.bytes = self.offsets.pop("")
        self._file = Replacement(self.path, force=force)
        try:
            if self._file.free < self.bytes:
                raise self._file.no_room(self.bytes)
            with self._file.errors(self.bytes):
                os.ftruncate(self._file.descriptor, self.bytes)
            self.write("level_table", 0, header.level_table.reshape(-1))
        except BaseException:
            self.abort()
            raise

    def write(self, name: str, element_offset: int, array: npt.NDArray[Any]) -> None:
        """Put an array of the section's dtype at an element of the section. Thread-safe."""
        dtype = SECTION[name].dtype
        if array.dtype != dtype or array.ndim != 1:
            raise ValueError(f"section {name} holds {dtype}, not {array.dtype} [{array.shape}]")
        if not 0 <= element_offset <= self.lengths[name] - len(array):
            raise ValueError(
                f"section {name} has {self.lengths[name]} elements, "
                f"not {element_offset} + {len(array)}"
            )
        data = np.ascontiguousarray(array).view(np.uint8).data
        self._pwrite(data, self.offsets[name] + element_offset * dtype.itemsize)

    def commit(self) -> None:
        """Checksums, header, fsync, rename, fsync of the folder. Reads the file once."""
        parts = chunks(self.offsets, self.lengths)
        digests = chunk_digests(self._file.descriptor, parts, self._threads)
        self.write("chunk_digests", 0, digests.reshape(-1))
        padding = bytes(self.bytes - self.offsets["chunk_digests"] - digests.size)
        checksums = section_checksums(parts, digests)
        checksums["chunk_digests"] = digest(digests.tobytes() + padding)
        self._pwrite(memoryview(headers.encode(self._header, checksums)), 0)
        self._file.commit()

    def abort(self) -> None:
        """Remove what was written. Does nothing after `commit`."""
        self._file.abort()

    def __enter__(self) -> ArtifactWriter:
        """Abort at the end of a `with` block that did not commit."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort unless committed."""
        self.abort()

    def _pwrite(self, data: memoryview, offset: int) -> None:
        with self._file.errors(self.bytes):
            while len(data):
                count = os.pwrite(self._file.descriptor, data, offset)
                data = data[count:]
                offset += count
