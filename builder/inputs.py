"""Which files an input names: paths, folders, globs and URIs, local or remote, and their state."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from flashtrie.formats.errors import InputError

_SUFFIXES = (".parquet", ".parq", ".pq")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_QUERY = re.compile(r"\?(?=[A-Za-z_]+=[^?]*$)")  # "part-?.parquet" is a glob, "?region=eu" is not
_WILDCARD = re.compile(r"[*?[]")
_LOCAL = fs.LocalFileSystem()


class Stamp(NamedTuple):
    """What tells that a file was replaced: size, time in ns, and inode where there is one."""

    size: int
    modified: int
    inode: int


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file to read: its name for messages, where it lies, and its state when it was found."""

    name: str
    path: str
    filesystem: fs.FileSystem
    stamp: Stamp

    @property
    def remote(self) -> bool:
        """Whether each read is a request over the network."""
        return self.filesystem is not _LOCAL

    def open(self) -> pa.NativeFile:
        """The file for random reads. Raises OSError."""
        return self.filesystem.open_input_file(self.path)


class Fault(NamedTuple):
    """What is wrong with one file."""

    file: str
    reason: str


def faults_error(faults: Sequence[Fault], hint: str = "") -> InputError:
    """One error that names every faulty file."""
    if len(faults) == 1:
        return InputError(faults[0].reason, faults[0].file, hint=hint)
    lines = "".join(f"\n  {fault.file}: {fault.reason}" for fault in faults)
    return InputError(f"{len(faults)} faults in the input", cause=lines, hint=hint)


def resolve(inputs: Iterable[str | os.PathLike[str]]) -> tuple[list[InputFile], list[Fault]]:
    """The files that `inputs` name, each once, in natural order (part-2 before part-10).

    A folder stands for the *.parquet, *.parq and *.pq below it, but for names that begin with
    "_" or "." (Hive's _a=1 partitions are read). In a glob, ** crosses folders. A URI is what
    pyarrow.fs.FileSystem.from_uri takes, its ?query included. What cannot be found is a fault.
    """
    files: dict[tuple[str, str], InputFile] = {}
    faults: list[Fault] = []
    for given in inputs:
        text = os.fspath(given)
        name = _shown(text)
        try:
            found = list(_from_uri(text) if _SCHEME.match(text) else _from_path(text))
        except (OSError, pa.ArrowException) as error:
            where = getattr(error, "filename", None) or name
            faults.append(Fault(where, getattr(error, "strerror", None) or str(error)))
            continue
        if not found:
            faults.append(Fault(name, _nothing(text)))
        for file in found:
            # The query may name another server, with other files of the same names.
            store = "".join(_QUERY.split(text)[1:]) if file.remote else ""
            files.setdefault((store, file.name if file.remote else file.path), file)
    return sorted(files.values(), key=lambda file: _natural(file.name)), faults


def unchanged(files: Sequence[InputFile]) -> list[bool]:
    """Whether each file is still as it was found: a stat or a small request each.

    Raises InputError where a store does not answer.
    """
    now: dict[int, Stamp | None] = {}
    stores: dict[int, list[int]] = {}
    for index, file in enumerate(files):
        if file.remote:
            stores.setdefault(id(file.filesystem), []).append(index)
        else:
            now[index] = _local_stamp(file.path)
    for indices in stores.values():
        filesystem = files[indices[0]].filesystem
        try:
            infos = filesystem.get_file_info([files[index].path for index in indices])
        except (OSError, pa.ArrowException) as error:
            name = files[indices[0]].name
            raise InputError("the files cannot be looked at again", name, str(error)) from error
        now.update(zip(indices, map(_remote_stamp, infos), strict=True))
    return [now[index] == file.stamp for index, file in enumerate(files)]


def output_stem(text: str | os.PathLike[str]) -> str | None:
    """STEM of STEM.trie for an input that is one file or folder; None for a glob or a root."""
    path = os.fspath(text)
    if _SCHEME.match(path):
        path = urllib.parse.unquote(_QUERY.split(path)[0])
    elif os.path.exists(path):
        path = os.path.abspath(path)
    if _WILDCARD.search(path) and not os.path.exists(path):
        return None
    name = path.rstrip("/").rpartition("/")[2]
    stem, suffix = os.path.splitext(name)
    return (stem if suffix.lower() in _SUFFIXES else name) or None


def _nothing(text: str) -> str:
    if _WILDCARD.search(_QUERY.split(text)[0]):
        return "no file matches"
    return "the folder holds no Parquet file (a name that ends in .parquet, .parq or .pq)"


def _natural(name: str) -> tuple[list[str | int], str]:
    parts = re.split(r"(\d+)", name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], name


def _hidden(name: str) -> bool:
    """Markers, checksums, half-written output: _SUCCESS, _temporary, .part.crc. As Spark does."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_data(parts: Sequence[str]) -> bool:
    """Whether a file at this path below a folder belongs to the folder's data."""
    return parts[-1].lower().endswith(_SUFFIXES) and not any(map(_hidden, parts))


# Local files.


def _local_stamp(path: str) -> Stamp | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return Stamp(state.st_size, state.st_mtime_ns, state.st_ino)


def _from_path(text: str) -> Iterator[InputFile]:
    if not os.path.exists(text) and _WILDCARD.search(text):
        yield from _from_glob(text)
        return
    mode = os.stat(text).st_mode
    if stat.S_ISDIR(mode):
        yield from map(_local, _walk(text))
    else:
        yield _local(text)


def _local(path: str) -> InputFile:
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):  # opening a pipe would wait for ever
        raise OSError(None, "not a regular file", path)
    stamp = Stamp(state.st_size, state.st_mtime_ns, state.st_ino)
    return InputFile(path, os.path.abspath(path), _LOCAL, stamp)  # pyarrow takes "s3:x" for a URI


def _walk(folder: str) -> Iterator[str]:
    """Data files below a folder. Links are followed, hidden folders are not entered."""
    seen = set()  # a link to a folder above would go round for ever
    pending = [folder]
    while pending:
        current = pending.pop()
        state = os.stat(current)
        if (state.st_dev, state.st_ino) in seen:
            continue
        seen.add((state.st_dev, state.st_ino))
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir():
                    if not _hidden(entry.name):
                        pending.append(entry.path)
                elif _is_data([entry.name]):
                    yield entry.path


def _from_glob(pattern: str) -> Iterator[InputFile]:
    base, parts = _split(pattern)
    for match in glob.iglob(pattern, recursive=True):
        below = os.path.relpath(match, base or ".").split(os.sep)
        if _explicit(parts) or not any(map(_hidden, below)):
            if os.path.isdir(match):
                yield from map(_local, _walk(match))
            else:
                yield _local(match)


def _split(pattern: str) -> tuple[str, list[str]]:
    """The folder before the first wildcard, and the components from there on."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if _WILDCARD.search(part))
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ""), parts[first:]


def _explicit(parts: Sequence[str]) -> bool:
    """Whether a pattern asks for hidden names itself."""
    return any(map(_hidden, parts))


# Remote files.


def _remote_stamp(info: fs.FileInfo) -> Stamp | None:
    if info.type != fs.FileType.File:
        return None
    return Stamp(info.size, info.mtime_ns or 0, 0)


def _shown(text: str) -> str:
    """The input as messages show it: without the credentials and options of a URI."""
    if not (scheme := _SCHEME.match(text)):
        return text
    authority, slash, path = _QUERY.split(text)[0][scheme.end() :].partition("/")
    return scheme[0] + authority.rpartition("@")[2] + slash + path


def _open_uri(scheme: str, authority: str, path: str, query: str) -> tuple[fs.FileSystem, str]:
    """The filesystem, and the path in it. Blanks and brackets may stand in the URI as they are."""
    quoted = urllib.parse.quote(path, safe="/%:@=+,!$&'()*;~")
    uri = f"{scheme}{authority}{quoted}{query}"
    try:
        return fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:  # its message has the URI, and that may have a password
        raise OSError(None, str(error).replace(uri, _shown(uri))) from None


def _from_uri(text: str) -> Iterator[InputFile]:
    scheme = _SCHEME.match(text)
    assert scheme
    cut = _QUERY.search(text)
    end = cut.start() if cut else len(text)
    authority, slash, path = text[scheme.end() : end].partition("/")
    path = slash + path
    if not (authority or path.strip("/")):
        raise OSError(None, "the URI names no file, folder or bucket")
    filesystem, root = _open_uri(scheme[0], authority, path, text[end:])
    if isinstance(filesystem, fs.LocalFileSystem):
        yield from _from_path(root)
        return
    name = _shown(text)
    info = filesystem.get_file_info(root)
    if info.type == fs.FileType.NotFound and _WILDCARD.search(path):
        base, parts = _split(path)
        filesystem, root = _open_uri(scheme[0], authority, base, text[end:])
        name = _shown(f"{scheme[0]}{authority}{base}")
        yield from _listed(filesystem, root, name, [urllib.parse.unquote(p) for p in parts])
    elif info.type == fs.FileType.NotFound:
        raise OSError(None, "no such file or folder")
    elif stamp := _remote_stamp(info):
        yield InputFile(name, root, filesystem, stamp)
    else:
        yield from _listed(filesystem, root, name, [])


def _listed(
    filesystem: fs.FileSystem, root: str, name: str, pattern: list[str]
) -> Iterator[InputFile]:
    """Files below a remote folder that match, or lie in a folder that matches, the pattern."""
    for info in filesystem.get_file_info(fs.FileSelector(root, recursive=True)):
        below = info.path[len(root) :].strip("/").split("/")
        stamp = _remote_stamp(info)
        if stamp and _chosen(below, pattern):
            path = "/".join(below)
            yield InputFile(f"{name.rstrip('/')}/{path}", info.path, filesystem, stamp)


def _chosen(below: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return _is_data(below)
    if any(map(_hidden, below)) and not _explicit(pattern):
        return False
    if _matches(below, pattern):
        return True
    folders = (below[:depth] for depth in range(1, len(below)))
    return _is_data(below[-1:]) and any(_matches(folder, pattern) for folder in folders)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (bool(parts) and _matches(parts[1:], pattern))
    return (
        bool(parts)
        and fnmatch.fnmatchcase(parts[0], pattern[0])
        and _matches(parts[1:], pattern[1:])
    )
