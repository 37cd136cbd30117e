from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.keysets import mixed
from tests.reference_builder import reference_artifact


@pytest.fixture(scope="session", params=["implicit", "indexed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right artifact of either kind of tails. Tests write to copies of it."""
    path = tmp_path_factory.mktemp("whole") / "whole.trie"
    reference_artifact(path, mixed(), tails=request.param, tags={"night": "é 12"})
    return path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.trie"
    path.write_bytes(whole.read_bytes())
    return path
