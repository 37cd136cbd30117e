"""Whether a GPU can be used, and what is said where it cannot be. No GPU is needed."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashtrie.gpu import devices


class RuntimeFault(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


def pretend(monkeypatch: Any, *, count: int = 1, capability: str = "90", status: int = 0) -> None:
    """A CuPy that sees such a machine."""

    def devices_there() -> int:
        if status:
            raise RuntimeFault(status)
        return count

    cupy = ModuleType("cupy")
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    runtime = SimpleNamespace(
        getDeviceCount=devices_there,
        CUDARuntimeError=RuntimeFault,
        getDeviceProperties=lambda number: {"name": b"Some GPU"},
        driverGetVersion=lambda: 13020,
    )
    device = SimpleNamespace(id=0, compute_capability=capability)
    cupy.cuda = SimpleNamespace(runtime=runtime, Device=lambda: device)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def test_a_gpu_that_can_be_used(monkeypatch):
    pretend(monkeypatch)
    assert devices.missing() is None
    pretend(monkeypatch, capability="100")
    assert devices.missing() is None


@pytest.mark.parametrize(
    ("machine", "cause"),
    [
        ({"count": 0}, "no CUDA device"),
        ({"status": 100}, "no CUDA device"),
        ({"status": 35}, "no NVIDIA driver"),
        ({"status": 999}, "cudaError 999"),
        ({"capability": "75"}, "capability 7.5"),
    ],
)
def test_a_gpu_that_cannot_be_used(monkeypatch, machine, cause):
    pretend(monkeypatch, **machine)
    missing = devices.missing()
    assert missing is not None
    assert cause in missing.cause and missing.hint


def test_without_cupy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = devices.missing()
    assert missing is not None
    assert missing.cause == "CuPy is not installed" and "flashtrie[gpu]" in missing.hint


def test_a_cupy_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", None)
    missing = devices.missing()
    assert missing is not None and "cannot be imported" in missing.cause


@pytest.mark.parametrize("shown", ["580.159.03\n", ""])
def test_chip_and_driver(monkeypatch, shown):
    pretend(monkeypatch)
    done = SimpleNamespace(returncode=0 if shown else 9, stdout=shown)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    assert devices.chip() == "Some GPU"
    assert devices.driver() == (shown.strip() or "CUDA 13.2")
