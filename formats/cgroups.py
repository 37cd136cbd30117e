"""The control groups that a process is in, of either version: where its limits stand."""

from __future__ import annotations

from pathlib import Path

_GROUPS, _ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cgroups(controller: str) -> list[Path]:
    """The folders of this process's group of a controller, such as "memory", and of all above."""
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return []
    result = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _ROOT / controller if controllers else _ROOT
        here = root / name.lstrip("/")
        result += [folder for folder in (here, *here.parents) if root in (folder, *folder.parents)]
    return result
