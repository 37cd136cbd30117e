"""Running `trie` in the test's process, or in one of its own where exit and signals matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashtrie.cli.main import app
from tests.conftest import write_parquet

ROWS = [[1, 2, 3], [1, 2], [1, 2, 4], [7], [7, 8, 9, 10, 11], [300, 1], [1, 2], [12, 9, 10, 11]]
VALUES = [10, 20, 30, -40, 50, 60, 21, 70]


class Result:
    """What a run of `trie` gave."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.stdout.count("\n") == 1
        return json.loads(self.stdout)


Run = Callable[..., Result]


def trie(*words: str | Path, **environment: str) -> Result:
    """Run in this process; `environment` is added to the environment."""
    found = CliRunner().invoke(app, [str(word) for word in words], env=environment)
    return Result(found.exit_code, found.stdout, found.stderr)


def command(*words: str | Path) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "flashtrie", *map(str, words)]


def process(*words: str | Path, **environment: str) -> Result:
    """Run in a process of its own."""
    found = subprocess.run(
        command(*words),
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Result(found.returncode, found.stdout, found.stderr)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and an environment without TRIE_ variables."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("TRIE_"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keywords.parquet of ROWS and VALUES, keywords.trie and plain.trie of it.

    keywords.trie has values and a tag; plain.trie has neither.
    """
    place = tmp_path_factory.mktemp("built")
    source = write_parquet(place / "keywords.parquet", ROWS, VALUES)
    options = ["--values", "value", "--column", "tokens", "--tag", "kind=test"]
    assert trie("build", source, "-o", place / "keywords.trie", *options).code == 0
    assert trie("build", source, "-o", place / "plain.trie").code == 0
    return place
