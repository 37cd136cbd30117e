"""How many threads are started by default, where a cgroup limits the time on the cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flashtrie.formats import cgroups, cores
from flashtrie.formats.cores import usable_cores


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A file of cgroups and the root of their folders, and a process that may run on 8 cores."""
    monkeypatch.setattr(cgroups, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path / "sys")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    cores._limit.cache_clear()
    yield tmp_path
    cores._limit.cache_clear()


def limit(folder: Path, quota: str, period: str = "100000", *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if version == 2:
        (folder / "cpu.max").write_text(f"{quota} {period}\n")
    else:
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text(f"{period}\n")


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max", 8), ("200000", 2), ("150000", 2), ("50000", 1), ("1000000", 8), ("nonsense", 8)],
)
def test_a_quota(system, quota, expected):
    (system / "cgroup").write_text("0::/box\n")
    limit(system / "sys" / "box", quota)
    assert usable_cores() == expected


def test_the_least_of_all_groups_above(system):
    (system / "cgroup").write_text("0::/a/b/c\n")
    limit(system / "sys" / "a" / "b" / "c", "max")
    limit(system / "sys" / "a" / "b", "300000")
    limit(system / "sys" / "a", "500000")
    assert usable_cores() == 3


def test_the_root_of_a_container(system):
    (system / "cgroup").write_text("0::/\n")
    limit(system / "sys", "400000")
    assert usable_cores() == 4


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("250000", 3)])
def test_version_1(system, quota, expected):
    (system / "cgroup").write_text("5:memory:/box\n1:cpu,cpuacct:/box\n0::/\n")
    limit(system / "sys" / "cpu" / "box", quota, version=1)
    assert usable_cores() == expected


def test_no_cgroups(system):
    assert usable_cores() == 8


def test_everything_asks_here():
    """Of the layers nothing else counts cores."""
    root = Path(__file__).resolve().parents[2]
    layers = ("cli", "builder", "cpu", "gpu", "formats")
    files = [path for layer in layers for path in (root / layer).rglob("*.py")]
    counting = [path.name for path in files if "sched_getaffinity" in path.read_text()]
    assert counting == ["cores.py"]
