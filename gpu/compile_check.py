"""Compile every kernel for every architecture, on a machine without a GPU: `make kernels`.

    python -m flashtrie.gpu.compile_check [--cache FOLDER] [FILE...]

It takes cuda-core and the compiler's wheels, and prints a line for each kernel file and
architecture: PATH sm_NN registers=R spill_bytes=S ok. Of a file's kernels and variants the worst
counts; variants of the search follow with the shared memory of a block. An error, a register that
spills, or a block that has no room fails. Of sampling, that is on the smallest GPUs, too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from flashtrie.formats.cores import usable_cores
from flashtrie.gpu import plan, sampling_plan
from flashtrie.gpu.compiler import FOLDER, source

# Shared memory that a block may have, in bytes.
ARCHITECTURES = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}

_ELEMENTS = ({"ELEMENT": 0}, {"ELEMENT": 1}, {"ELEMENT": 2})
_ROW_THREADS = [{**element, "THREADS": threads} for element in _ELEMENTS for threads in (256, 512)]
# What a file is compiled with; those of sampling for each element type, all others once.
_DEFINES: dict[str, list[dict[str, int]]] = {
    "proposals.cu": [{"THREADS": plan.PROPOSAL_THREADS}],
    "sampling_resolve.cu": _ROW_THREADS,
}
_SEARCH = "search.cu"
_REGISTERS = re.compile(r"Used (\d+) registers")
# Of a function: its name, and the bytes that it spills, stores and loads.
_SPILLS = re.compile(
    r"Function properties for (\S+)\n.* (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_STATIC = re.compile(r"Used \d+ registers.* (\d+) bytes smem")


class Figures(NamedTuple):
    """Of a compilation: registers of a thread, bytes that spill, shared bytes that it asks for.

    `called_bytes` spill in functions that a kernel calls, which are off its loops over elements: a
    row's end, and what few rows take. `static_bytes` are of shared variables.
    """

    registers: int
    spill_bytes: int
    called_bytes: int = 0
    shared_bytes: int = 0
    static_bytes: int = 0
    error: str = ""


def variants(name: str, architecture: str) -> list[dict[str, int]]:
    """What a file is compiled with for an architecture."""
    if name == _SEARCH:
        shared = ARCHITECTURES[architecture]
        chosen = [plan.defines(width, shared_bytes=shared) for width in plan.WIDTHS]
        return [one for i, one in enumerate(chosen) if one not in chosen[:i]]
    if name in _DEFINES:
        return _DEFINES[name]
    return [*_ELEMENTS] if name.startswith("sampling") else [{}]


def check(
    name: str, architecture: str, defines: Mapping[str, int], cache: Path | None = None
) -> Figures:
    """Compile a file. One to eight seconds, or none where the cache knows it."""
    kept = cache / _key(name, architecture, defines) if cache else None
    if kept and kept.exists():
        return _held(Figures(*json.loads(kept.read_text())), name, architecture, defines)
    try:
        code, log = compile_text(source(name), name, architecture, defines)
    except RuntimeError as error:
        return Figures(0, 0, error=f"{dict(defines)}: {error}")
    kernels, called = [0], [0]
    for function, stores, loads in _SPILLS.findall(log):
        (called if function.startswith("_Z") else kernels).append(int(stores) + int(loads))
    registers = max(map(int, _REGISTERS.findall(log)), default=0)
    shared = constant(code, "block_bytes") if name == _SEARCH else 0
    static = max(map(int, _STATIC.findall(log)), default=0)
    found = Figures(registers, max(kernels), max(called), shared, static)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(found))
        os.replace(written, kept)
    return _held(found, name, architecture, defines)


def _held(found: Figures, name: str, architecture: str, defines: Mapping[str, int]) -> Figures:
    """The figures, with the error where a block does not fit, or as the plans do not say."""
    room = ARCHITECTURES[architecture]
    error = ""
    if name == _SEARCH:
        error = shared_error(found.shared_bytes, plan.block_bytes(defines), room)
    elif name in sampling_plan.STATIC_BYTES:
        error = sampling_error(name, found.static_bytes, defines, room)
    return found._replace(error=f"{dict(defines)}: {error}" if error else "")


def shared_error(found: int, planned: int, room: int) -> str:
    """What is wrong with the shared memory of a block; nothing where it is as planned and fits."""
    if found != planned:
        return f"a block takes {found:,} bytes, plan.py says {planned:,}"
    return f"a block takes {found:,} bytes of {room:,}" if found > room else ""


def sampling_error(name: str, static: int, defines: Mapping[str, int], room: int) -> str:
    """The same of a kernel that takes what the device has, here and where that is least."""
    most = sampling_plan.STATIC_BYTES[name]
    if static > most:
        return f"static variables take {static:,} bytes, sampling_plan.py says {most:,} at most"
    if name == "sampling_resolve.cu":
        for there in (room, sampling_plan.LEAST_BLOCK_BYTES):
            taken = static + sampling_plan.resolve_bytes(defines["THREADS"] == 512, there)
            if taken > there:
                return f"a block takes {taken:,} bytes of {there:,}"
    return ""


def compile_text(
    text: str, name: str, architecture: str, defines: Mapping[str, int]
) -> tuple[bytes, str]:
    """Machine code and the assembler's log, which has the figures. Raises RuntimeError."""
    from cuda.core import Program, ProgramOptions

    # The options of compiler.OPTIONS by the names that they have here.
    options: dict[str, Any] = {
        "name": name,
        "arch": architecture,
        "std": "c++17",
        "fma": False,
        "ftz": False,
        "prec_div": True,
        "prec_sqrt": True,
        "ptxas_options": ["-v"],
    }
    if defines:
        options["define_macro"] = [(macro, str(value)) for macro, value in defines.items()]
    log = io.StringIO()
    try:
        program = Program(text, "c++", ProgramOptions(**options))
        code = bytes(program.compile("cubin", logs=log).code)
    except Exception as error:  # of several types, by what is wrong
        raise RuntimeError(f"{error}\n{log.getvalue()}") from None
    return code, log.getvalue()


def constant(code: bytes, name: str) -> int:
    """A 32-bit constant of machine code, by its name: what the ELF file has at the symbol."""
    (sections_at,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    # Of a section: its kind, where it is loaded, where it stands, its size, and its strings.
    sections = [
        struct.unpack_from("<4xI8xQQQI", code, sections_at + i * size) for i in range(count)
    ]
    for kind, _, at, length, strings in sections:
        if kind != 2:  # a table of symbols
            continue
        for symbol in range(at, at + length, 24):
            text, _, _, section, value = struct.unpack_from("<IBBHQ", code, symbol)
            start = sections[strings][2] + text
            if code[start : code.index(b"\0", start)] == name.encode():
                _, loaded, place, _, _ = sections[section]
                (found,) = struct.unpack_from("<I", code, place + value - loaded)
                return int(found)
    raise KeyError(name)


def _key(name: str, architecture: str, defines: Mapping[str, int]) -> str:
    from importlib.metadata import version

    made_of = (source(name), architecture, sorted(defines.items()), version("cuda-toolkit"))
    return xxhash.xxh3_128_hexdigest((repr(made_of) + Path(__file__).read_text()).encode())


def _lines(names: list[str], cache: Path | None) -> Iterator[tuple[str, bool]]:
    tasks = [
        (name, architecture, defines)
        for name in names
        for architecture in ARCHITECTURES
        for defines in variants(name, architecture)
    ]
    with ProcessPoolExecutor(usable_cores()) as pool:
        waiting = list(pool.map(partial(_check, cache), tasks))
    results = iter(zip(tasks, waiting, strict=True))
    for name in names:
        for architecture in ARCHITECTURES:
            made = [next(results) for _ in variants(name, architecture)]
            figures = [found for _, found in made]
            errors = [found.error for found in figures if found.error]
            registers = max(found.registers for found in figures)
            spills = max(found.spill_bytes for found in figures)
            verdict = "error" if errors else "spills" if spills else "ok"
            line = f"gpu/kernels/{name} {architecture} registers={registers} spill_bytes={spills}"
            called = max(found.called_bytes for found in figures)
            rest = [
                f"    {' '.join(f'{macro}={value}' for macro, value in defines.items())} "
                f"registers={found.registers} shared_bytes={found.shared_bytes}"
                for (_, _, defines), found in made
                if found.shared_bytes
            ]
            if called:
                rest.append(f"    in functions that are called: spill_bytes={called}")
            yield "\n".join([f"{line} {verdict}", *rest, *errors]), verdict == "ok"


def _check(cache: Path | None, task: tuple[str, str, dict[str, int]]) -> Figures:
    return check(*task, cache)


def main() -> int:
    """Print the lines; 0 where all are ok."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--cache", type=Path, help="keeps figures of what did not change")
    arguments = parser.parse_args()
    names = arguments.files or sorted(path.name for path in FOLDER.glob("*.cu"))
    good = True
    for line, ok in _lines(names, arguments.cache):
        print(line, flush=True)
        good &= ok
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
