"""Files that we write: beside the output, renamed over it once they are whole and on disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from flashtrie.formats.errors import OutputError, ResourceError
from flashtrie.formats.undisturbed import undisturbed

_ARTIFACT = "the artifact"

# A file that is read, by its path or, where it may have been renamed since, its open descriptor.
Read: TypeAlias = str | os.PathLike[str] | int


class Replacement:
    """A new file that takes the place of `path` with `commit`; without it nothing is left.

    It is written at `temporary` or through `descriptor`. `what` names it in messages, and `reads`
    are the files that it is made from.

    Raises OutputError as `check_output` does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str = _ARTIFACT,
        *,
        force: bool = False,
        reads: Iterable[Read] = (),
    ) -> None:
        """Create the file, hidden and locked; remove what dead writers to `path` have left."""
        self.descriptor = -1
        self.path = os.fspath(path)
        self._what = what
        self._force = force
        check_output(self.path, what, force=force, reads=reads)
        remove_leftovers(self.path)
        self._folder, name = os.path.split(os.path.abspath(self.path))
        self.temporary = os.path.join(self._folder, f".{name}.{os.getpid()}.tmp")
        with undisturbed():
            self.descriptor = self._create()

    def commit(self) -> None:
        """Sync, rename, sync the folder."""
        with self.errors():
            os.fsync(self.descriptor)
            check_output(self.path, self._what, force=self._force)
            os.rename(self.temporary, self.path)
            sync_folder(self._folder)
        os.close(self.descriptor)
        self.descriptor = -1

    def abort(self) -> None:
        """Remove what was written. Does nothing after `commit`."""
        with undisturbed():
            if self.descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.unlink(self.temporary)
                os.close(self.descriptor)
                self.descriptor = -1

    def __del__(self) -> None:
        """Abort, where a signal came between making and entering it."""
        self.abort()

    def __enter__(self) -> Replacement:
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

    @contextlib.contextmanager
    def errors(self, need: int | None = None) -> Iterator[None]:
        """What the system says about a write, as ResourceError or OutputError.

        `need` is the bytes of the whole file, where they are known.
        """
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self.no_room(need) from error
            cause = error.strerror or str(error)
            if isinstance(error, FileExistsError):
                cause = f"another process writes {self.temporary}"
            raise OutputError(f"cannot write {self._what}", self.path, cause) from error

    @property
    def free(self) -> int:
        """Bytes that can still be written to the folder."""
        status = os.statvfs(self._folder)
        return status.f_bavail * status.f_frsize

    def no_room(self, need: int | None) -> ResourceError:
        """The error for a disk that is full, or too small for `need` bytes."""
        written = os.fstat(self.descriptor).st_blocks * 512
        needs = f"more than {written:,}" if need is None else f"{need:,}"
        return ResourceError(
            f"no room for {self._what}",
            self._folder,
            f"it needs {needs} bytes and {self.free + written:,} are free",
            "Free some, or choose another folder",
        )

    def _create(self) -> int:
        """The open temporary file, locked: a lock that is free marks a dead writer's leftover."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self.errors():
            while True:
                descriptor = os.open(self.temporary, flags, 0o666)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.fstat(descriptor).st_nlink:
                    return descriptor
                os.close(descriptor)  # taken for a leftover before the lock was there


def check_output(
    path: str | os.PathLike[str],
    what: str = _ARTIFACT,
    *,
    force: bool = False,
    reads: Iterable[Read] = (),
) -> None:
    """Raise OutputError where `what` cannot be written to `path`. Some file system calls.

    What is there is replaced with `force` alone, and not even so where it is a file of `reads`,
    those that `what` is made from, by whatever name.
    """
    where = os.fspath(path)
    failed = f"cannot write {what}"
    folder = os.path.dirname(os.path.abspath(where))
    if not os.path.basename(where):
        raise OutputError(failed, where, "it names no file")
    if not os.path.isdir(folder):
        raise OutputError(failed, where, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(failed, where, f"the folder {folder} is not writable")
    try:
        status = os.stat(where)
    except FileNotFoundError:
        if os.path.islink(where) and not force:
            cause = "there is a symbolic link, to a file that does not exist"
            raise OutputError(failed, where, cause, "--force replaces it") from None
        return
    except OSError as error:
        raise OutputError(failed, where, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(failed, where, "there is something that is not a regular file")
    if any(_is(read, status) for read in reads):
        raise OutputError(failed, where, "it is an input as well", "Choose another output")
    if not force:
        raise OutputError(failed, where, "the file exists", "--force replaces it")


def _is(read: Read, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(read), status)
    except OSError:  # whoever reads it says so
        return False


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of writers to `path` that died. Reads the folder's names."""
    folder, name = os.path.split(os.path.abspath(path))
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9]+\.tmp")
    with contextlib.suppress(PermissionError):  # a folder may be writable and not readable
        for entry in filter(pattern.fullmatch, os.listdir(folder)):
            with contextlib.suppress(OSError):
                _remove_unlocked(Path(folder, entry))


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Make a rename last through a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
