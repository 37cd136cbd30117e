"""Whether a GPU can be used, and why not: what `--device` needs to know.

Everything that runs on the device imports CuPy at its top, so ask here first.
"""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import dataclass
from typing import Any

from flashtrie.formats.errors import UsageError

_LEAST_CAPABILITY = 80  # asynchronous copies to shared memory
_OLD_OR_NO_DRIVER = 35  # cudaErrorInsufficientDriver
_NO_DEVICE = 100  # cudaErrorNoDevice
_INSTALL = "pip install 'flashtrie[gpu]' from the checkout or wheel"


@dataclass(frozen=True)
class Missing:
    """Why no GPU can be used, and what would help."""

    cause: str
    hint: str

    def error(self) -> UsageError:
        """The error for what needs a GPU."""
        return UsageError("cannot use a GPU", cause=self.cause, hint=self.hint)


def missing() -> Missing | None:
    """What keeps the current device from being used; None where it can be. Imports CuPy."""
    if importlib.util.find_spec("cupy") is None:
        return Missing("CuPy is not installed", f"Install the extra: {_INSTALL}")
    try:
        import cupy
    except Exception as error:  # of many types, by what is wrong with the installation
        return Missing(f"CuPy cannot be imported: {error}", f"Install the extra again: {_INSTALL}")
    runtime = cupy.cuda.runtime
    try:
        if runtime.getDeviceCount() == 0:
            return Missing("there is no CUDA device", "See nvidia-smi")
        capability = int(cupy.cuda.Device().compute_capability)
    except runtime.CUDARuntimeError as error:
        return _unusable(error)
    if capability < _LEAST_CAPABILITY:
        shown = f"{capability // 10}.{capability % 10}"
        return Missing(f"the GPU has compute capability {shown}", "It takes 8.0 or more")
    return None


def _unusable(error: Any) -> Missing:
    if error.status == _OLD_OR_NO_DRIVER:
        cause = "there is no NVIDIA driver, or it is too old for this CuPy"
        return Missing(cause, "Install a driver for CUDA 13; see nvidia-smi")
    if error.status == _NO_DEVICE:
        return Missing("there is no CUDA device", "See nvidia-smi and CUDA_VISIBLE_DEVICES")
    return Missing(f"the GPU does not answer: {error}", "See nvidia-smi")


def chip() -> str:
    """The name of the current device, where nothing is missing."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return str(properties["name"].decode())


def driver() -> str:
    """The version of the driver, or where nvidia-smi is not there of the CUDA that it has."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is not None and done.returncode == 0 and done.stdout.strip():
        return done.stdout.split()[0]
    import cupy

    version = cupy.cuda.runtime.driverGetVersion()
    return f"CUDA {version // 1000}.{version % 1000 // 10}"
