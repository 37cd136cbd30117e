"""Open an artifact: header and level table are read and proved, the payload is mapped.

Milliseconds and some kilobytes, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats import header as headers
from flashtrie.formats.checksums import digest, read_into
from flashtrie.formats.errors import ArtifactChanged, InputError
from flashtrie.formats.header import LENGTH_BYTES, MAX_HEADER_BYTES, damaged, foreign
from flashtrie.formats.relations import contradiction
from flashtrie.formats.schema import (
    ALIGNMENT,
    FORMAT,
    LEVEL_COLUMNS,
    SECTION,
    Header,
    level_parameters,
    padded_bytes,
    sizes,
)

_PARQUET_MAGIC = b"PAR1"


class Artifact:
    """An open artifact. Its arrays are views of the file, and read no earlier than they are used.

    `header` has the counts and the level table, `parameters` what `schema.level_parameters` makes
    of them. `sections` has a read-only array of each section's true length in elements, `lengths`
    that length, `offsets` the byte of the file at which it begins, `checksums` 32 hex digits.
    `mapped` is the whole file, `bytes` its size, `header_bytes` where the first section begins.
    """

    def __init__(
        self,
        path: str,
        descriptor: int,
        status: os.stat_result,
        header: Header,
        lengths: dict[str, int],
        checksums: dict[str, str],
        header_bytes: int,
    ) -> None:
        """Take over an open descriptor whose header is proved; `open_artifact` calls this."""
        self.path = path
        self.header = header
        self.parameters = level_parameters(header)
        self.parameters.flags.writeable = False
        self.lengths = lengths
        self.checksums = checksums
        self.header_bytes = header_bytes
        self.bytes = status.st_size
        self.offsets = headers.file_offsets(header_bytes, lengths)
        del self.offsets[""]
        self._descriptor = -1
        self._status = status
        try:
            mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        except ValueError as error:  # it is longer than the file
            raise damaged(path, "the file was cut while it was read") from error
        self.mapped: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        self.sections: dict[str, npt.NDArray[Any]] = {
            name: np.frombuffer(mapped, SECTION[name].dtype, length, self.offsets[name])
            for name, length in lengths.items()
        }
        self._descriptor = descriptor  # last: before, the caller closes it

    @property
    def descriptor(self) -> int:
        """The open file, for reading at offsets. Raises ValueError after `close`."""
        if self._descriptor < 0:
            raise ValueError(f"the artifact {self.path} is closed")
        return self._descriptor

    def check_unchanged(self) -> None:
        """Raise ArtifactChanged if the file was written to or cut since it was opened. One call.

        The file that was opened counts, not what the path names by now: a replacement by rename
        changes nothing here.
        """
        status = os.fstat(self.descriptor)
        if (status.st_size, status.st_mtime_ns) != (self._status.st_size, self._status.st_mtime_ns):
            raise self._changed("its size or time differ from those at opening")

    def pread(self, offset: int, size: int) -> bytes:
        """Bytes of the file without the map. Raises ArtifactChanged where the file ends sooner."""
        buffer = bytearray(size)
        self.pread_into(memoryview(buffer), offset)
        return bytes(buffer)

    def pread_into(self, buffer: memoryview, offset: int) -> None:
        """Fill a buffer of bytes from the file without the map; as `pread`, without a copy."""
        if read_into(self.descriptor, buffer, offset) < len(buffer):
            raise self._changed("it was cut")

    def _changed(self, cause: str) -> ArtifactChanged:
        hint = "Open it again; replace artifacts by rename, as `trie build` does"
        return ArtifactChanged("the artifact was changed while open", self.path, cause, hint)

    def close(self) -> None:
        """Close the file. The map goes when the last array that was taken from it goes."""
        if self._descriptor >= 0:
            self.sections = {}
            del self.mapped
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Artifact:
        """Close at the end of a `with` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """Close what was not closed."""
        with contextlib.suppress(AttributeError):
            self.close()


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open an artifact and prove its header and level table. O(levels), no payload is read.

    Raises InputError where there is no file to read, ArtifactError for a file that is not a right
    artifact, NewerFormatError for one of a later version.
    """
    where = os.fspath(path)
    try:
        # Without O_NONBLOCK a named pipe would wait for its writer.
        descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(where, error) from error
    try:
        return _open(where, descriptor)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise _unreadable(where, error) from error
        raise


def looks_like_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the header of an artifact, be it a right one. Reads up to 1 MiB."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size > MAX_HEADER_BYTES:
                return False
            return bool(json.loads(file.read(size))["__metadata__"]["format"] == FORMAT)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def _unreadable(where: str, error: OSError) -> InputError:
    return InputError("cannot read the artifact", where, error.strerror or str(error))


def _open(where: str, descriptor: int) -> Artifact:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise foreign(where, "it is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise foreign(where, "it is not a regular file")
    raw = _read_header(where, descriptor, status.st_size)
    document = headers.parse(raw, where)
    checksums = headers.checksums(document, where)
    levels = headers.levels(document, where)
    table = _read_level_table(where, descriptor, len(raw), levels)
    if digest(bytes.fromhex(digest(table))) != checksums["level_table"]:
        raise damaged(where, "the checksum of section level_table differs from the header's")
    rows = np.frombuffer(table, "<i8", levels * len(LEVEL_COLUMNS)).astype(np.int64)
    header = headers.decode(document, rows.reshape(levels, -1), where)
    header.level_table.flags.writeable = False
    if problem := contradiction(header):
        raise damaged(where, problem)
    lengths = sizes(header)
    headers.check_layout(document, header, lengths, where)
    end = headers.file_offsets(len(raw), lengths)[""]
    if status.st_size != end:
        raise damaged(where, f"the file has {status.st_size:,} bytes where {end:,} are right")
    return Artifact(where, descriptor, status, header, lengths, checksums, len(raw))


def _read_header(where: str, descriptor: int, file_bytes: int) -> bytes:
    if file_bytes == 0:
        raise foreign(where, "it is empty")
    start = os.pread(descriptor, LENGTH_BYTES, 0)
    if start.startswith(_PARQUET_MAGIC):
        raise foreign(where, "it is a Parquet file")
    total = LENGTH_BYTES + int.from_bytes(start, "little")
    if len(start) < LENGTH_BYTES:
        raise foreign(where, f"it has only {file_bytes} bytes")
    if total > MAX_HEADER_BYTES:
        raise foreign(where, f"its first bytes state a header of {total - LENGTH_BYTES:,} bytes")
    if total > file_bytes:
        raise damaged(where, f"the file ends within its header: {file_bytes:,} of {total:,} bytes")
    if total % ALIGNMENT:
        raise foreign(where, f"its header ends at byte {total}, no multiple of {ALIGNMENT}")
    raw = bytearray(total)
    if read_into(descriptor, memoryview(raw), 0) < total:
        raise damaged(where, "the file was cut while it was read")
    return bytes(raw)


def _read_level_table(where: str, descriptor: int, offset: int, levels: int) -> bytes:
    """The section `level_table`, padding included: it is the first, right behind the header."""
    table = bytearray(padded_bytes("level_table", levels * len(LEVEL_COLUMNS)))
    if read_into(descriptor, memoryview(table), offset) < len(table):
        raise damaged(where, "the file ends within section level_table")
    return bytes(table)
