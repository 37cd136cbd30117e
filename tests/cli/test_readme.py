"""The commands and the Python of README.md, and those of `make demo`, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sampling.conftest import has_gpu

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
# What a reader has and the test has not: a bucket with a hundred million keywords.
STANDS_FOR = {"s3://bucket/keywords/": "export", "--min-keywords 1e8": "--min-keywords 1e3"}
NEEDS_GPU = ("trie load",)


def commands() -> list[str]:
    """The indented lines that begin with `trie`, each with those that it goes on in."""
    found = re.findall(r"^    (trie (?:.*\\\n)*.*)$", README, re.MULTILINE)
    return [re.sub(r"\\\n\s*", "", command).partition("  #")[0].strip() for command in found]


def of_demo() -> list[str]:
    """What the folder `demo` sees of `make demo`."""
    lines = (ROOT / "Makefile").read_text().partition("\ndemo: $(STAMP)\n")[2].splitlines()
    prefix = "\tcd demo && "
    found = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return [command.replace("$$", "$") for command in found]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    for there, here in STANDS_FOR.items():
        command = command.replace(there, here)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With what stands for a bucket."""
    (tmp_path / "export").mkdir()
    rows = pa.array([[i % 7, i] for i in range(5000)], pa.list_(pa.uint32()))
    table = pa.table({"tokens": rows, "document_id": pa.array(range(5000), pa.int64())})
    pq.write_table(table, tmp_path / "export" / "part.parquet")
    return tmp_path


def test_there_are_commands() -> None:
    assert len(commands()) >= 12 and len(of_demo()) >= 8
    assert all(name in README for name in STANDS_FOR)
    assert set(NEEDS_GPU) <= set(commands())


def test_the_commands_of_the_readme(folder: Path) -> None:
    for command in commands():
        done = run(command, folder)
        if command in NEEDS_GPU and not has_gpu():
            assert done.returncode == 2 and "cannot use a GPU" in done.stderr
            continue
        allowed = {0, 1} if command == "trie lookup --tokens 0" else {0}
        if "s3://" in command:
            # The artifact of five minutes before is far larger: a guard says so.
            assert done.returncode == 1 and "--max-shrink" in done.stderr
            done = run(re.sub(r"--max-shrink \S+", "", command), folder)
            (folder / "keywords.trie").unlink()
            assert run("trie build keywords", folder).returncode == 0
        assert done.returncode in allowed, (command, done.stderr)


def test_the_commands_of_the_demo(folder: Path) -> None:
    for command in of_demo():
        done = run(command, folder)
        assert done.returncode == 0, (command, done.stderr)
    assert pq.read_metadata(folder / "results.parquet").num_rows > 0


def test_the_python_of_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(folder)
    os.rename(folder / "export" / "part.parquet", folder / "keywords.parquet")
    if not has_gpu():
        text = "\n".join(line for line in text.splitlines() if "to_device" not in line)
    names: dict[str, Any] = {
        "tokens": np.array([[[1, 2, 3], [1, 8, 9]]]),
        "logprobs": np.zeros((1, 2, 3), np.float32),
    }
    exec(text, names)
    found = names["found"]
    assert sorted(map(tuple, found.tokens.reshape(-1, 2).tolist())) == [(1, 1), (1, 8), (2, 9)]
