"""What a build holds on disk while it runs: the lock of its output, and a folder of spill files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from types import TracebackType

from flashtrie.formats.errors import OutputError, ResourceError, UsageError
from flashtrie.formats.outputs import remove_leftovers
from flashtrie.formats.undisturbed import undisturbed

# Only folders of exactly this name are ever removed: others may begin like it.
_FOLDER = re.compile(r"flashtrie-[0-9a-f]{16}")
_LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_PID = re.compile(rb"[0-9]+\n")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class OutputLock:
    """OUT.lock, held by flock for the life of a build. A context manager; costs microseconds.

    Once it is held, what dead builds left beside OUT is removed. A second build to the same
    output, in this process or another, gets an OutputError that names the pid of the first. The
    lock of a dead build is free, whatever pid it says. The file has its pid from the moment it is
    there, so that one without is known to be something else's, and stays.
    """

    def __init__(self, output: str | os.PathLike[str]) -> None:
        """Take the lock at once, or raise OutputError; ResourceError where the disk is full."""
        self._descriptor = -1
        self.output = os.fspath(output)
        self.path = f"{self.output}.lock"
        try:
            with undisturbed(), full_disk(os.path.dirname(os.path.abspath(self.output))):
                remove_leftovers(self.path)
                self._descriptor = self._take()
                remove_leftovers(self.output)
        except OSError as error:
            self.release()
            raise OutputError(
                "cannot lock the output", self.path, error.strerror or str(error)
            ) from error
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Remove the file and give the lock back. Does nothing the second time."""
        with undisturbed():
            if self._descriptor >= 0:
                # It goes while the lock is held: who opened it meanwhile sees that it is gone.
                with contextlib.suppress(OSError):
                    if _is_at(self._descriptor, self.path):
                        os.unlink(self.path)
                os.close(self._descriptor)
                self._descriptor = -1

    def __del__(self) -> None:
        """Release, where a signal came between making and entering it."""
        self.release()

    def __enter__(self) -> OutputLock:
        """The lock is held since it was made."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release."""
        self.release()

    def _take(self) -> int:
        """The descriptor of the lock, made anew: that of a dead build is removed."""
        descriptor = -1
        while descriptor < 0:
            with contextlib.suppress(FileNotFoundError):
                self._clear()
            descriptor = self._create()
        return descriptor

    def _clear(self) -> None:
        """Remove the lock of a dead build. Raises OutputError where another's file is there."""
        descriptor = os.open(self.path, _FLAGS)
        try:
            pid = os.pread(descriptor, 32, 0)
            if not _PID.fullmatch(pid):
                raise OutputError(
                    "there is a file that is no lock of ours",
                    self.path,
                    hint="Remove it if nothing needs it, or choose another output with -o",
                )
            if not _lock(descriptor):
                raise OutputError(
                    f"another build writes to it (pid {int(pid)})",
                    self.output,
                    hint="Wait until it is done, or choose another output with -o",
                )
            if _is_at(descriptor, self.path):  # else its holder removed it in between
                os.unlink(self.path)
        finally:
            os.close(descriptor)

    def _create(self) -> int:
        """The descriptor of a new file with the pid, locked; -1 where another came first."""
        folder, name = os.path.split(os.path.abspath(self.path))
        temporary = os.path.join(folder, f".{name}.{secrets.randbits(63)}.tmp")
        descriptor = os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            # It may have been taken for a dead build's before it was locked, and be gone.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                _link(temporary, self.path)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        os.close(descriptor)
        return -1


class Scratch:
    """A folder flashtrie-XXXXXXXXXXXXXXXX in `tmp_dir` for spill files, removed on any exit.

    A context manager; `folder` is its path. A file in it is held by flock while the build lives.
    On entry sibling folders whose lock can be had, those of dead builds, are removed.
    """

    def __init__(self, tmp_dir: str | os.PathLike[str]) -> None:
        """Make the folder. Raises UsageError where that is not possible, ResourceError if full."""
        self._descriptor = -1
        self._parent = os.fspath(tmp_dir)
        try:
            with undisturbed(), full_disk(self._parent):
                _remove_dead(self._parent)
                self.folder, self._descriptor = self._make()
        except OSError as error:
            raise UsageError(
                "cannot make a scratch folder",
                self._parent,
                error.strerror or str(error),
                "Choose another folder with --tmp-dir",
            ) from error

    def remove(self) -> None:
        """Remove the folder and all in it. Does nothing the second time.

        What cannot be removed is left to the next build: an error here would hide the first one.
        """
        with undisturbed():
            if self._descriptor >= 0:
                with contextlib.suppress(OSError):
                    _remove(self.folder)
                os.close(self._descriptor)
                self._descriptor = -1

    def __del__(self) -> None:
        """Remove, where a signal came between making and entering it."""
        self.remove()

    def __enter__(self) -> Scratch:
        """The folder is there since the object was made."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove."""
        self.remove()

    def _make(self) -> tuple[str, int]:
        """A new folder and the descriptor of its locked file.

        Between the steps another build may take the folder for a dead one's and remove it: then
        this one has no lock at that path, and makes another.
        """
        while True:
            folder = os.path.join(self._parent, f"flashtrie-{secrets.token_hex(8)}")
            os.mkdir(folder, 0o700)
            try:
                with contextlib.suppress(FileNotFoundError):
                    lock = os.path.join(folder, _LOCK)
                    descriptor = os.open(lock, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
                    if _lock(descriptor) and _is_at(descriptor, lock):
                        return folder, descriptor
                    os.close(descriptor)
            except BaseException:
                _remove(folder)
                raise


def scratch_parent(tmp_dir: str | os.PathLike[str] | None, output: str | os.PathLike[str]) -> str:
    """Where scratch goes: `tmp_dir`, else $TRIE_TMP_DIR, else the folder of the output."""
    chosen = tmp_dir or os.environ.get("TRIE_TMP_DIR")
    return os.fspath(chosen) if chosen else os.path.dirname(os.path.abspath(output))


@contextlib.contextmanager
def full_disk(folder: str | os.PathLike[str], need: int | None = None) -> Iterator[None]:
    """Turn a full disk or quota into ResourceError with folder, free bytes and, if known, need."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = free_bytes(folder)
        cause = f"{free:,} bytes are free"
        if need is not None:
            cause = f"it needs about {need:,} bytes and {cause}"
        if error.errno == errno.EDQUOT:
            cause = f"the quota is used up; {cause}"
        raise ResourceError(
            "the disk is full",
            os.fspath(folder),
            cause,
            "Free some, or choose another folder with --tmp-dir or -o",
        ) from error


def free_bytes(folder: str | os.PathLike[str]) -> int:
    """Bytes that an ordinary user can still write to the file system of `folder`."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _link(temporary: str, path: str) -> None:
    """Give a file its name. Raises FileExistsError where there is one of that name."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: two that come at the same moment both go on.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        os.rename(temporary, path)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the open file is still the one at `path`: a lock of a removed one locks nothing."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_dead(parent: str) -> None:
    """Remove the folders of dead builds; what cannot be looked at or removed stays."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_if_dead(entry.path)


def _remove_if_dead(folder: str) -> None:
    try:
        descriptor = os.open(os.path.join(folder, _LOCK), _FLAGS)
    except FileNotFoundError:
        os.rmdir(folder)  # died before it had a lock, and so is empty
        return
    try:
        if _lock(descriptor):
            _remove(folder)
    finally:
        os.close(descriptor)


def _remove(folder: str) -> None:
    """Remove a scratch folder, its lock last: without the lock nobody could tell it is one."""
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != _LOCK:
                    os.unlink(entry.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, _LOCK))
        os.rmdir(folder)
