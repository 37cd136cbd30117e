"""`jit`, the decorator of every compiled function, and the folder where their machine code is kept.

Numba's own cache looks at the file of a function, not at the files of the functions that it
calls, and so serves stale code after such a change. Here the folder is named by a hash of all
sources of the package.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pickle
import platform
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import xxhash
from llvmlite import binding
from numba.core import config
from numba.core.caching import FunctionCache

# An integer of compiled code; called from Python it may also be an int.
Int = Any

_F = TypeVar("_F", bound=Callable[..., Any])

# Parts of Numba without types, or with types in some versions.
_config: Any = config
_FunctionCache: Any = FunctionCache

_FOLDER_NAME = re.compile(r"[0-9a-f]{32}")
_LOCK = "lock"  # a file of each cache folder; its time says when the folder was last used
_UNUSED_SECONDS = 30 * 24 * 3600


def jit(function: _F) -> _F:
    """Compile with Numba on the first call for given argument types, or load that from the cache.

    Without the GIL, without fast math. The cost of a first call is 0.1 to 2 s, of a cached
    one some milliseconds.
    """
    if _config.DISABLE_JIT:
        return function
    dispatcher: Any = numba.njit(nogil=True)(function)
    folder = _cache_folder()
    if folder is not None:
        before = _config.CACHE_DIR  # other packages keep theirs
        _config.CACHE_DIR = str(folder)
        try:
            dispatcher._cache = _Cache(function)
        finally:
            _config.CACHE_DIR = before
    return cast(_F, dispatcher)


def is_cold() -> bool:
    """Whether no compiled code is in the cache, so that this run compiles. One folder is read."""
    folder = _cache_folder()
    return folder is None or not any(folder.glob("*/*.nbi"))


class _Cache(_FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, with one writer at a time, and never an error of its own.

    Numba picks the name of a data file by an index that two processes may read at once; each
    then writes its own specialisation under the same name.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        folder = _cache_folder()
        assert folder is not None
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError), _locked(folder):
            super().save_overload(sig, data)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@functools.cache
def _cache_folder() -> Path | None:
    """The folder of this version of the sources, made if need be; None where nothing is writable.

    A few milliseconds, once a process.
    """
    key = _key()
    for base in _bases():
        folder = base / key
        try:
            new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder), _locked(folder):
                os.utime(folder / _LOCK)
        except OSError:
            continue
        if new:
            _remove_unused(base)
        return folder
    return None


def _key() -> str:
    """Hash of the package's sources and of everything else that compiled code depends on."""
    package = Path(__file__).parent.parent
    digest = xxhash.xxh3_128()
    versions = (numba.__version__, platform.python_version(), binding.get_host_cpu_name())
    digest.update("\0".join(versions).encode())
    # followlinks: an editable install has links to the folders.
    for folder, folders, files in os.walk(package, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                digest.update(f"\0{os.path.relpath(path, package)}\0".encode())
                with open(path, "rb") as source:
                    digest.update(source.read())
    return digest.hexdigest()


def _bases() -> Iterator[Path]:
    """Folders to hold the cache, best first."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen, "flashtrie").absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the specification says to ignore any other
        yield Path(xdg, "flashtrie")
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        yield Path(home, ".cache", "flashtrie")
    with contextlib.suppress(OSError):
        yield _temporary_base()


def _temporary_base() -> Path:
    """This user's folder in the shared temporary one, which only this user may open.

    Code is loaded from it.
    """
    base = Path(tempfile.gettempdir(), f"flashtrie-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{base} is open to others")
    return base


def _remove_unused(base: Path) -> None:
    """Remove the folders of other versions that no process has used for 30 days."""
    oldest = time.time() - _UNUSED_SECONDS
    for folder in base.iterdir():
        if _FOLDER_NAME.fullmatch(folder.name):
            with contextlib.suppress(OSError):
                if (folder / _LOCK).stat().st_mtime < oldest:
                    shutil.rmtree(folder)
