"""The rules of ARCHITECTURE.md: which folder may import which, file sizes, names, start-up."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("cli", "builder", "cpu", "gpu", "formats")
# What each layer may import of the package beside itself. "" is the package root.
ALLOWED = {
    "cli": {"builder", "cpu", "gpu", "formats", ""},
    "builder": {"formats"},
    "cpu": {"formats"},
    "gpu": {"formats"},
    "formats": set[str](),
}
MAX_LINES = 500
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
HEAVY = ("numpy", "numba", "pyarrow", "cupy")
HELP_SECONDS = 0.3


def source_files(*suffixes: str) -> list[Path]:
    folders = [ROOT / name for name in (*LAYERS, "tests", "benchmarks", "docs")]
    files = [path for folder in folders for path in folder.rglob("*")]
    # The links to the layers in the package folder are not followed: only its own files count.
    files += (ROOT / "src" / "flashtrie").glob("*.*")
    return sorted(path for path in files if path.suffix in suffixes and path.is_file())


def imported_modules(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """Absolute names of all that a module imports, at its top or within functions."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else ""
            called = function.id if isinstance(function, ast.Name) else called
            argument = node.args[0]
            if called in ("import_module", "__import__") and isinstance(argument, ast.Constant):
                yield str(argument.value)


def wrong_imports(layer: str, source: str, module: str, is_package: bool = False) -> list[str]:
    """Imports of the package that the layer may not have."""
    wrong = []
    for name in imported_modules(source, module, is_package):
        top, *rest = name.split(".")
        if top in LAYERS:
            wrong.append(name)  # The installed name is flashtrie.LAYER.
        if top != "flashtrie":
            continue
        target = rest[0] if rest and rest[0] in LAYERS else ""
        if target not in {layer, *ALLOWED[layer]}:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer):
    for path in sorted((ROOT / layer).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(("flashtrie", *(parts[:-1] if is_package else parts)))
        wrong = wrong_imports(layer, path.read_text(), module, is_package)
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize(
    ("layer", "line", "wrong"),
    [
        ("cli", "from flashtrie.gpu import memory", False),
        ("cli", "import flashtrie", False),
        ("cpu", "from flashtrie.formats import schema", False),
        ("cpu", "from .search import beam", False),
        ("cpu", "import numpy", False),
        ("cpu", "from flashtrie.builder import plan", True),
        ("builder", "from flashtrie import cpu", True),
        ("gpu", "from ..cpu import search", True),
        ("gpu", "from .. import cpu", True),
        ("gpu", "def f():\n    import flashtrie.cpu.search", True),
        ("gpu", "importlib.import_module('flashtrie.cpu')", True),
        ("builder", "import flashtrie", True),
        ("formats", "from flashtrie.cli import main", True),
        ("formats", "import formats.schema", True),
    ],
)
def test_the_import_test_itself(layer, line, wrong):
    assert bool(wrong_imports(layer, line, f"flashtrie.{layer}.module")) == wrong


def test_files_are_short():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in source_files(".py", ".cu", ".cuh", ".hpp")
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_file_is_named_for_nothing():
    names = {
        str(path.relative_to(ROOT))
        for path in source_files(".py", ".cu", ".cuh", ".hpp")
        if FORBIDDEN_NAMES & {part.lower() for part in path.relative_to(ROOT).with_suffix("").parts}
    }
    assert names == set()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("module", ["flashtrie", "flashtrie.cli"])
def test_the_command_line_starts_without_heavy_imports(module):
    """With every module below it imported, where it is a package of commands."""
    script = f"""
import importlib, pkgutil, sys
module = importlib.import_module({module!r})
if {module!r} != "flashtrie":
    for found in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        importlib.import_module(found.name)
    assert "flashtrie.cli.main" in sys.modules
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    result = run("-c", script)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_help_is_quick():
    """The best of five, more where the machine is busy with other things."""
    best = float("inf")
    for attempt in range(15):
        start = time.perf_counter()
        result = run("-m", "flashtrie", "--help")
        best = min(best, time.perf_counter() - start)
        assert result.returncode == 0, result.stderr
        if attempt >= 4 and best < HELP_SECONDS:
            break
    assert best < HELP_SECONDS
