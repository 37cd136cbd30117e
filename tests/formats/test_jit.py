"""Where compiled code is kept, and that it is never that of other sources."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "formats" / "jit.py"

KERNELS = """
from pkg.formats.jit import jit
from pkg.callee import constant

@jit
def kernel(n):
    return constant() + n
"""
MAIN = """
from pkg.formats import jit
cold = jit.is_cold()
from pkg.kernels import kernel
results = kernel(1), kernel(1.5)
print(jit._cache_folder(), cold, jit.is_cold(), *results, sum(kernel.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A package with the same jit.py and a kernel that calls another file's."""
    folder = tmp_path / "pkg"
    (folder / "formats").mkdir(parents=True)
    (folder / "formats" / "jit.py").write_text(SOURCE.read_text())
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "main.py").write_text(MAIN)
    set_constant(folder, 10)
    return folder


def set_constant(package: Path, value: int) -> None:
    text = f"from pkg.formats.jit import jit\n@jit\ndef constant():\n    return {value}\n"
    (package / "callee.py").write_text(text)


def start(package: Path, **environment: str) -> subprocess.Popen[str]:
    """A fresh process, with nothing of this one's environment but PATH."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    command = [sys.executable, "-m", "pkg.main"]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, bool, bool, list[float]]:
    """Cache folder, cold before, cold after, results, and how many came from the cache."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert not errors
    folder, before, after, *rest = output.split()
    return folder, before == "True", after == "True", [float(value) for value in rest]


def test_cache_is_keyed_by_all_sources(package, tmp_path):
    environment = {"HOME": str(tmp_path / "home")}
    folder, before, after, results = finish(start(package, **environment))
    assert folder.startswith(f"{tmp_path}/home/.cache/flashtrie/")
    assert (before, after, results) == (True, False, [11, 11.5, 0])
    assert finish(start(package, **environment)) == (folder, False, False, [11, 11.5, 2])
    set_constant(package, 20)
    other, before, after, results = finish(start(package, **environment))
    assert other != folder
    assert (before, after, results) == (True, False, [21, 21.5, 0])


def test_folders(package, tmp_path):
    unwritable = {"HOME": "/proc"}
    temporary = {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    for environment, base in (
        ({"NUMBA_CACHE_DIR": f"{tmp_path}/n", "XDG_CACHE_HOME": f"{tmp_path}/x"}, "n/flashtrie"),
        ({"XDG_CACHE_HOME": f"{tmp_path}/x", "HOME": f"{tmp_path}/h"}, "x/flashtrie"),
        ({"XDG_CACHE_HOME": "relative", "HOME": f"{tmp_path}/h"}, "h/.cache/flashtrie"),
        ({"NUMBA_CACHE_DIR": "/proc/n", "HOME": f"{tmp_path}/h"}, "h/.cache/flashtrie"),
        (unwritable | temporary, f"tmp/flashtrie-{os.getuid()}"),
    ):
        folder, _, _, results = finish(start(package, **environment))
        assert str(Path(folder).parent) == str(tmp_path / base)
        assert results[:2] == [11, 11.5]
    assert (tmp_path / f"tmp/flashtrie-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_temporary_folder_of_others(package, tmp_path):
    """Code is not loaded from a folder that others may write to; then nothing is kept."""
    base = tmp_path / f"flashtrie-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    environment = {"HOME": "/proc", "TMPDIR": str(tmp_path)}
    assert finish(start(package, **environment)) == ("None", True, True, [11, 11.5, 0])
    base.rmdir()
    base.symlink_to(tmp_path)
    assert finish(start(package, **environment))[0] == "None"


def test_two_processes_with_a_cold_cache(package, tmp_path):
    environment = {"HOME": str(tmp_path / "home")}
    processes = [start(package, **environment) for _ in range(3)]
    for process in processes:
        assert finish(process)[3][:2] == [11, 11.5]
    assert finish(start(package, **environment))[3] == [11, 11.5, 2]


def test_read_only_package(package, tmp_path):
    for path in [*package.rglob("*"), package]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        _, before, after, results = finish(start(package, HOME=str(tmp_path / "home")))
        assert (before, after, results) == (True, False, [11, 11.5, 0])
    finally:
        for path in [package, *package.rglob("*")]:
            path.chmod(0o755)


def test_damaged_cache(package, tmp_path):
    environment = {"HOME": str(tmp_path / "home")}
    folder = Path(finish(start(package, **environment))[0])
    for path in folder.rglob("*.nb*"):
        path.write_bytes(path.read_bytes()[:3])
    assert finish(start(package, **environment))[3][:2] == [11, 11.5]


def test_old_folders_go(package, tmp_path):
    base = tmp_path / "home/.cache/flashtrie"
    old, recent, foreign = base / ("0" * 32), base / ("1" * 32), base / "mine"
    for folder, days in ((old, 31), (recent, 29), (foreign, 400)):
        folder.mkdir(parents=True)
        (folder / "lock").write_text("")
        used = time.time() - days * 86_400
        os.utime(folder / "lock", (used, used))
    folder = Path(finish(start(package, HOME=str(tmp_path / "home")))[0])
    assert sorted(base.iterdir()) == sorted([folder, recent, foreign])


def test_without_compilation(package, tmp_path):
    environment = {"HOME": str(tmp_path), "NUMBA_DISABLE_JIT": "1"}
    program = "from pkg.kernels import kernel; print(type(kernel).__name__, kernel(1))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent), **environment},
        text=True,
        capture_output=True,
    )
    assert done.stdout == "function 11\n", done.stderr
