"""Builds by the command line in a process of their own, and the places where they fail."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Result, command

THREADS = 2


def environment(**changes: str) -> dict[str, str]:
    """That of this process without its TRIE_ variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIE_")}
    return kept | changes


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start `trie` with these words."""
    settings: dict[str, Any] = {
        "env": environment(),
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        # A job that a shell runs in the background ignores SIGINT, and hands that down.
        "preexec_fn": _heed_interrupts,
    }
    prefix = options.pop("prefix", [])
    return subprocess.Popen([*prefix, *command(*words)], **settings | options)


def finish(running: subprocess.Popen[str]) -> Result:
    """Wait for it."""
    stdout, stderr = running.communicate(timeout=120)
    return Result(running.returncode, stdout, stderr)


def wait_for_lock(output: Path, running: subprocess.Popen[str]) -> None:
    """Until the build has begun: it holds the lock of its output, and has written its pid there."""
    lock = output.with_name(f"{output.name}.lock")
    end = time.monotonic() + 60
    while running.poll() is None and time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            if lock.read_bytes():
                return
        time.sleep(0.002)


def run(*words: str | Path, **options: Any) -> Result:
    """Run `trie` in a process of its own."""
    return finish(start(*words, **options))


def write_matrix(
    path: Path, tokens: npt.NDArray[Any], values: npt.NDArray[Any] | None = None, **options: Any
) -> Path:
    """A Parquet file of keywords of one length: tokens [rows, length]."""
    rows, length = tokens.shape
    offsets = pa.array(np.arange(rows + 1) * length, pa.int32())
    flat = pa.array(tokens.reshape(-1).astype(np.uint32))
    columns: dict[str, Any] = {"tokens": pa.ListArray.from_arrays(offsets, flat)}
    if values is not None:
        columns["value"] = pa.array(values)
    settings: dict[str, Any] = {"row_group_size": 1 << 17, "compression": "zstd"}
    pq.write_table(pa.table(columns), path, **settings | options)
    return path


def power_law(rows: int, length: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Token ids below 100,000, few of them frequent: [rows, length]."""
    drawn = np.random.default_rng(seed).pareto(0.3, (rows, length)) * 3
    return np.minimum(drawn, 1e15).astype(np.int64) % 100_000


def least_memory(*words: str | Path) -> int:
    """MiB that a build with these words says it takes at least."""
    found = run("build", *words, "--memory", "1MiB", "--dry-run")
    assert found.code == 2
    (mib,) = re.findall(r"Give at least ([0-9,]+) MiB", found.stderr)
    return int(mib.replace(",", ""))


class Spilling(NamedTuple):
    """A key set, and options with which its build goes through scratch files."""

    source: Path
    options: list[str]

    def words(self, output: Path, scratch: Path, *more: str) -> list[str | Path]:
        """The words of a build."""
        return [
            *("build", self.source, "-o", output, "--tmp-dir", scratch, "--force"),
            *("--quiet", "--json", *self.options, *more),
        ]


def make_spilling(folder: Path) -> Spilling:
    """600,000 keywords: a build of a second or two that spills some 10 MB."""
    source = write_matrix(folder / "keywords.parquet", power_law(600_000, 5))
    options = ["--threads", str(THREADS)]
    least = least_memory(source, "-o", folder / "x.trie", *options)
    return Spilling(source, [*options, "--memory", f"{least}MiB"])


@pytest.fixture(scope="session")
def spilling(tmp_path_factory: pytest.TempPathFactory) -> Spilling:
    """One key set for all tests."""
    return make_spilling(tmp_path_factory.mktemp("spilling"))


def make_artifact(folder: Path) -> bytes:
    """Last night's artifact."""
    source = write_matrix(folder / "old.parquet", power_law(1000, 3))
    assert run("build", source, "-o", folder / "old.trie", "--quiet").code == 0
    return (folder / "old.trie").read_bytes()


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Last night's artifact."""
    return make_artifact(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="session")
def small_disk(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], Any]:
    """`with small_disk(bytes) as folder`: a file system of that size. Skips who may not mount."""

    @contextmanager
    def mounted(size: int) -> Iterator[Path]:
        folder = tmp_path_factory.mktemp("disk")
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if os.geteuid() or not shutil.which("mount") or subprocess.run(words).returncode:
            pytest.skip("may not mount")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)

    return mounted


@pytest.fixture(scope="session")
def as_user() -> list[str]:
    """Words that run a command for whom the modes of files count. Root loses that privilege."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and there is no setpriv")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
