"""Where arrays of other libraries lie, as DLPack says it. Nothing here takes CUDA."""

from __future__ import annotations

from typing import Any

from flashtrie.formats.errors import InputError

# Types of devices: memory of a CUDA device or managed memory; the host's, or what it has pinned.
_ON_DEVICE = (2, 13)
_ON_HOST = (1, 3)


def device_of(array: Any) -> int | None:
    """The number of the CUDA device that an array lies on; None where it lies on the host.

    That is also where all lies that does not speak DLPack. Raises InputError for other devices.
    """
    if not hasattr(array, "__dlpack_device__"):
        return None
    kind, device = array.__dlpack_device__()
    if kind in _ON_DEVICE:
        return int(device)
    if kind not in _ON_HOST:
        raise InputError(
            f"an array of type {type(array).__name__} on a device of DLPack's type {int(kind)}",
            cause="arrays lie on a CUDA device, or in the memory of the host",
        )
    return None
