"""`device` runs a test on the CPU, and on the GPU where there is one."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest


class Device:
    """Moves arrays to where a test runs and back.

    bfloat16 goes to the GPU through PyTorch, and to the emulated one as it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def hardware(self) -> bool:
        """Whether it is a GPU, and not an emulated one."""
        if self.name == "cpu":
            return False
        import cupy

        return not hasattr(cupy, "EMULATED")

    def put(self, array: Any) -> Any:
        if self.name == "cpu" or not isinstance(array, np.ndarray):
            return array
        import cupy

        if array.dtype == ml_dtypes.bfloat16 and self.hardware:
            import torch

            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
        return cupy.asarray(array)

    def get(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return array
        if type(array).__module__.startswith("torch"):
            import torch

            if array.dtype == torch.bfloat16:
                return array.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
            return array.cpu().numpy()
        return array.get()


def has_gpu() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    if request.param == "cuda" and not has_gpu():
        pytest.skip("needs a CUDA device")
    return Device(request.param)
