"""What memory there is, and what this process has taken of it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from flashtrie.formats.cgroups import cgroups


def peak_memory() -> int:
    """The most resident memory that this process has had, in bytes.

    Not getrusage's where there is a better one: that begins with the parent's, up to the exec.
    """
    return _kib("/proc/self/status", "VmHWM:") or (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )


# Of the interpreter and its libraries, with compiled code: what is private to this process, and
# the step that resident parts of mapped libraries are rounded to.
_PRIVATE_BYTES, _MAPPED_STEP = 112 << 20, 64 << 20
_LEAST_MAPPED_BYTES = 2 * _MAPPED_STEP


def resident_memory() -> int:
    """Resident bytes of this process now; 0 where the system does not say."""
    return _kib("/proc/self/status", "VmRSS:") or 0


def process_memory() -> int:
    """Bytes that this process has resident before a build holds anything, to be planned with.

    A mapped library counts with its resident pages; the file system and the kernel decide how many
    of them are brought in around one that is used.
    """
    mapped = _kib("/proc/self/status", "RssFile:") or 0
    return _PRIVATE_BYTES + max(_LEAST_MAPPED_BYTES, -(-mapped // _MAPPED_STEP) * _MAPPED_STEP)


def default_memory() -> int:
    """Half of the memory that the cgroup or the host has available, in bytes."""
    return available_memory() // 2


def available_memory() -> int:
    """Bytes that could be used now, by the host and by each cgroup limit above this process."""
    free = _host_available()
    for folder in cgroups("memory"):
        limit = _read_int(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _read_int(folder / "memory.current", folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            # Cached file pages count as used but are given up on demand.
            free = min(free, max(0, limit - used + _cached(folder)))
    return free


def _host_available() -> int:
    return _kib("/proc/meminfo", "MemAvailable:") or (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )


def _kib(path: str, name: str) -> int | None:
    """The bytes of a line such as `VmHWM: 1234 kB`."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith(name))
    return next((int(number) * 1024 for number in found), None)


def _read_int(*paths: Path) -> int | None:
    for path in paths:
        try:
            return int(path.read_text())
        except (OSError, ValueError):  # missing, or the word max
            continue
    return None


def _cached(folder: Path) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stat = dict(line.split() for line in lines)
    return int(stat.get("inactive_file", stat.get("total_inactive_file", 0)))
