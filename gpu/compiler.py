"""Kernels from their text: compiled on first use, for the device at hand, and kept on disk.

CuPy's own compilation would flush subnormal numbers to zero (it always appends -ftz=true), which
the CPU engine does not do, so the compiler is called here. A file of machine code is named by a
hash of all that it depends on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

FOLDER = Path(__file__).parent / "kernels"

# Sums are those of the CPU engine, bit by bit: no contraction, no flushing, exact division.
OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")

_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)


def source(name: str) -> str:
    """Text of a kernel file with its headers put in, each once."""
    seen: set[str] = set()

    def expand(file: str) -> str:
        if file in seen:
            return ""
        seen.add(file)
        text = (FOLDER / file).read_text().replace("#pragma once\n", "")
        return _INCLUDE.sub(lambda match: expand(match[1]), text)

    return expand(name)


def define_options(defines: Mapping[str, int]) -> tuple[str, ...]:
    """Macros as options, in a fixed order."""
    return tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))


def compile_source(text: str, name: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """Machine code and the compiler's log. One to six seconds. Raises RuntimeError with the log."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, options)
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise RuntimeError(f"{name} does not compile: {error}\n{log}") from None
    finally:
        nvrtc.destroyProgram(program)


def load(
    file: str, function: str, defines: Mapping[str, int] | None = None, cooperative: bool = False
) -> Any:
    """A kernel of a file of gpu/kernels for the current device, as CuPy calls it."""
    return load_module(file, defines, cooperative).get_function(function)


def load_module(
    file: str, defines: Mapping[str, int] | None = None, cooperative: bool = False
) -> Any:
    """The module of a file of gpu/kernels, compiled with macros, for the current device."""
    import cupy

    device = cupy.cuda.Device()
    options = define_options(defines or {})
    return _load(file, options, cooperative, device.id, device.compute_capability)


@functools.cache
def _load(
    file: str, options: tuple[str, ...], cooperative: bool, device: int, capability: str
) -> Any:
    """Of a device, whose number is only here to tell modules apart."""
    import cupy

    path = _machine_code(file, (f"--gpu-architecture=sm_{capability}", *OPTIONS, *options))
    return cupy.RawModule(path=str(path), enable_cooperative_groups=cooperative)


def _machine_code(file: str, options: tuple[str, ...]) -> Path:
    from cupy.cuda import nvrtc

    text = source(file)
    key = "\0".join((text, *options, str(nvrtc.getVersion()))).encode()
    folder = _folder()
    path = folder / f"flashtrie-{xxhash.xxh3_128_hexdigest(key)}.cubin"
    if not path.exists():
        code, _ = compile_source(text, file, options)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as output:
            output.write(code)
        os.replace(temporary, path)
    return path


@functools.cache
def _folder() -> Path:
    """Where machine code is kept: as CuPy's, or for this process alone where that is read-only."""
    chosen = os.environ.get("CUPY_CACHE_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".cupy" / "kernel_cache"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    _folder_of_process = tempfile.TemporaryDirectory(prefix="flashtrie-")
    _kept.append(_folder_of_process)
    return Path(_folder_of_process.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends
