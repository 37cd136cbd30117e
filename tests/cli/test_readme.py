"""README.md as it is typed, from top to bottom in one folder, and `make demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flashtrie
from tests.cli.pages import ROOT, blocks, commands, run
from tests.sampling.conftest import has_gpu

# What a reader has and the test has not: a bucket with a hundred million keywords.
STANDS_FOR = {"s3://bucket/keywords/": "export", "--min-keywords 1e8": "--min-keywords 1e3"}
NEEDS_GPU = ("trie load",)
MAY_BE_ABSENT = ("trie lookup --tokens 0",)


def of_demo() -> list[str]:
    """What the folder `demo` sees of `make demo`."""
    lines = (ROOT / "Makefile").read_text().partition("\ndemo: $(STAMP)\n")[2].splitlines()
    prefix = "\tcd demo && "
    found = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return [command.replace("$$", "$") for command in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With what stands for a bucket."""
    (tmp_path / "export").mkdir()
    rows = pa.array([[i % 7, i] for i in range(5000)], pa.list_(pa.uint32()))
    table = pa.table({"tokens": rows, "document_id": pa.array(range(5000), pa.int64())})
    pq.write_table(table, tmp_path / "export" / "part.parquet")
    return tmp_path


def test_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command and the Python, with nothing done in between."""
    monkeypatch.chdir(folder)
    typed: list[str] = []
    names: dict[str, Any] = {}
    for block in blocks("README.md"):
        if block.kind == "python":
            exec(on_this_machine(block.text), names)
            continue
        for command in commands(block.text):
            typed.append(command)
            for there, here in STANDS_FOR.items():
                command = command.replace(there, here)
            done = run(command, folder)
            if command in NEEDS_GPU and not has_gpu():
                assert done.returncode == 2 and "cannot use a GPU" in done.stderr
                continue
            allowed = {0, 1} if command in MAY_BE_ABSENT else {0}
            assert done.returncode in allowed, (command, done.stderr)
    assert len(typed) >= 12 and {*NEEDS_GPU, *MAY_BE_ABSENT} <= set(typed)
    assert all(any(there in command for command in typed) for there in STANDS_FOR)

    # The command and the Python search the same queries, and find the same.
    results = pq.read_table(folder / "results.parquet", columns=["key_id"])
    assert results["key_id"].to_pylist() == names["found"].key_ids.tolist()
    assert (folder / "again.trie").read_bytes() == (folder / "keywords.trie").read_bytes()
    with flashtrie.open(folder / "documents.trie") as trie:
        assert trie.values(np.arange(len(trie))) is not None


def on_this_machine(text: str) -> str:
    """Without what takes a GPU, where there is none."""
    if has_gpu():
        return text
    return "\n".join(line for line in text.splitlines() if "to_device" not in line)


def test_the_commands_of_the_demo(folder: Path) -> None:
    assert len(of_demo()) >= 8
    for command in of_demo():
        done = run(command, folder)
        assert done.returncode == 0, (command, done.stderr)
    assert pq.read_metadata(folder / "results.parquet").num_rows > 0
