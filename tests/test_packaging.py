"""The wheel holds the whole package, and what it installs runs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("cli", "builder", "formats", "cpu", "gpu")
SUFFIXES = (".py", ".cu", ".cuh", ".typed")


def package_files() -> set[str]:
    """All that belongs into the wheel, by its name there."""
    found = {f"flashtrie/{path.name}" for path in (ROOT / "src" / "flashtrie").glob("*.*")}
    for layer in LAYERS:
        files = (path for path in (ROOT / layer).rglob("*") if path.suffix in SUFFIXES)
        found |= {f"flashtrie/{path.relative_to(ROOT).as_posix()}" for path in files}
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("flashtrie-*.whl")
    return found


def test_the_wheel_holds_every_file(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert "flashtrie/cli/main.py" in names


def test_the_wheel_carries_the_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_an_installed_wheel_runs(wheel, tmp_path):
    """In an environment of its own, with the dependencies of this one and not this package."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    options = ["install", "--no-deps", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *options, str(wheel)],
        check=True,
        timeout=120,
    )
    # A folder named in a .pth file comes last, and .pth files in it are not read.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    script = """
import importlib, pathlib, pkgutil, flashtrie
found = pkgutil.walk_packages(flashtrie.__path__, "flashtrie.")
names = [module.name for module in found if module.name != "flashtrie.__main__"]
for name in names:
    if not name.startswith("flashtrie.gpu."):
        importlib.import_module(name)
print(pathlib.Path(flashtrie.__file__).parent, len(names))
"""
    done = subprocess.run(
        [python, "-c", script], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    place, count = done.stdout.split()
    assert Path(place) == site / "flashtrie"
    assert int(count) > 30
    trie = [tmp_path / "venv" / "bin" / "trie", "--version"]
    shown = subprocess.run(trie, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    assert shown.stdout.startswith("flashtrie ")
