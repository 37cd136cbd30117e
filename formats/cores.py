"""How many threads are worth their while."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from flashtrie.formats.cgroups import cgroups


def usable_cores() -> int:
    """The cores that this process may run on, or fewer where a cgroup limits its time on them.

    A microsecond; the limit is looked up once. A quota of one and a half cores counts as two.
    """
    cores, limit = len(os.sched_getaffinity(0)), _limit()
    return cores if limit is None else min(cores, limit)


@cache
def _limit() -> int | None:
    quotas = [_quota(folder) for folder in cgroups("cpu")]
    cores = [-(-quota // period) for quota, period in quotas if quota > 0 and period > 0]
    return min(cores, default=None)


def _quota(folder: Path) -> tuple[int, int]:
    """Microseconds of all cores together, in a period of so many; 0 or less where not limited."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        return int(quota), int(period)
    except (OSError, ValueError):  # not there, or the word max
        return 0, 0
