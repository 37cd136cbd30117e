"""From the text of a kernel file to a shared library that runs its kernels on the CPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

HEADER = Path(__file__).parent / "cuda.hpp"

_DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")
_ASM = re.compile(r'\basm(?: volatile)?\s*\(\s*"([^"]*)"(.*?)\);', re.DOTALL)
_OPERAND = re.compile(r'"[=+]?\w"\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)')
_KERNEL = re.compile(r"emulated_kernel\s+void\s+(?:__cluster_dims__\((\w+)[^)]*\)\s*)?(\w+)\s*\(")
# Static variables of templates are those of one library: shared memory of one kernel.
_OPTIONS = ("-std=c++17", "-O1", "-march=native", "-fPIC", "-fno-gnu-unique", "-ffp-contract=off",
            "-fno-strict-aliasing", "-fpermissive", "-w", "-fsanitize=shift,bounds",
            "-fsanitize-undefined-trap-on-error")  # fmt: skip
_SMALLEST = 'extern "C" __global__ void nothing(int* at) { *at = (int)threadIdx.x; }'


def _instruction(match: re.Match[str]) -> str:
    """A call of the function that stands for an instruction: its operands in order."""
    name = re.sub(r"\W+", "_", match[1].replace("%%", "%")).strip("_")
    return f"ptx_{name}({', '.join(_OPERAND.findall(match[2]))});"


def translate(text: str) -> str:
    """C++ of a kernel file, without what only NVIDIA's compiler knows."""
    text = _DYNAMIC.sub(r"\1* \2 = (\1*)emulator::dynamic_shared();", text)
    return f'#include "{HEADER}"\n{_ASM.sub(_instruction, text)}'


def compile_library(text: str, options: list[str]) -> bytes:
    """The library of a kernel file, with macros as -D options. Raises RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(translate(text))
        whole = _run("g++", *_OPTIONS, *options, "-E", "-P", str(source))
        calls = []
        for cluster, name in _KERNEL.findall(whole):
            calls.append(
                f"""extern "C" unsigned cluster_of_{name} = {cluster or 1};
                extern "C" unsigned sizes_of_{name}(unsigned* sizes) {{
                    return emulator::sizes_of({name}, sizes);
                }}
                extern "C" void emulated_{name}(unsigned grid, unsigned threads, size_t shared,
                                                unsigned together, unsigned seed, void** values) {{
                    static void** given;
                    given = values;
                    emulator::run(grid, threads, shared, together, seed,
                                  [] {{ emulator::apply({name}, given); }});
                }}"""
            )
        whole = re.sub(r"__cluster_dims__\([^)]*\)", "", whole).replace("emulated_kernel", "")
        source.write_text("\n".join([whole, *calls]))
        _run("g++", *_OPTIONS, "-shared", str(source), "-o", str(library))
        return library.read_bytes()


def missing() -> str | None:
    """Why nothing can be emulated here; None where it can."""
    try:
        compile_library(_SMALLEST, [])
    except (OSError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return None


def _run(*words: str) -> str:
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr)
    return found.stdout
