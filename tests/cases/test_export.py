"""A half-arrived export: --min-keywords and --max-shrink keep last night's artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

import flashtrie
from flashtrie import CheckFailed
from tests.cli.conftest import trie
from tests.conftest import write_parquet

NIGHT = [[i, j] for i in range(10) for j in range(10)]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An artifact of 100 keywords."""
    write_parquet(tmp_path / "old.parquet", NIGHT)
    flashtrie.build([tmp_path / "old.parquet"], tmp_path / "out.trie")
    return tmp_path / "out.trie"


def half(output: Path, keywords: int) -> Path:
    """An export of some of the keywords, each twice."""
    return write_parquet(output.with_name("half.parquet"), NIGHT[:keywords] * 2)


@pytest.mark.parametrize(
    ("keywords", "words", "stopped"),
    [
        (94, ["--max-shrink", "5%"], True),
        (95, ["--max-shrink", "5%"], False),
        (94, ["--max-shrink", "0.06"], False),
        (58, ["--max-shrink", "42%"], False),
        (71, ["--max-shrink", "29%"], False),
        (70, ["--max-shrink", "29%"], True),
        (99, ["--max-shrink", "0"], True),
        (1, ["--max-shrink", "100%"], False),
        (50, ["--min-keywords", "51"], True),
        (50, ["--min-keywords", "50"], False),
        (50, ["--min-keywords", "50", "--max-shrink", "10%"], True),
        (95, ["--min-keywords", "1e6", "--max-shrink", "10%"], True),
    ],
)
def test_a_half_arrived_export(output, keywords, words, stopped):
    old = output.read_bytes()
    before = sorted(path.name for path in output.parent.iterdir())
    found = trie("build", half(output, keywords), "-o", output, "--force", "--quiet", *words)
    assert found.code == (1 if stopped else 0)
    assert (output.read_bytes() == old) == stopped
    if stopped:
        assert found.stdout == ""
        assert found.stderr.count("\n") == 1
        assert f"{keywords} keywords" in found.stderr
        assert words[-2] in found.stderr or words[0] in found.stderr
        assert "It was not replaced" in found.stderr or "Nothing was written" in found.stderr
    with flashtrie.open(output) as opened:
        assert len(opened) == (100 if stopped else keywords)
    after = sorted(path.name for path in output.parent.iterdir())
    assert after == sorted({*before, "half.parquet"})


def test_a_half_arrived_export_with_no_artifact_to_compare(output):
    output.unlink()
    source = half(output, 10)
    flashtrie.build([source], output, max_shrink=0.01)
    output.unlink()
    with pytest.raises(CheckFailed):
        flashtrie.build([source], output, max_shrink=0.01, min_keywords=11)
    assert not output.exists()


def test_a_half_arrived_export_over_a_file_that_is_no_artifact(output, tmp_path):
    """It is found out before any work: the input is not even looked for."""
    output.write_bytes(output.read_bytes()[:-64])
    found = trie(
        *("build", tmp_path / "missing.parquet", "-o", output, "--force"),
        *("--max-shrink", "5%", "--quiet"),
    )
    assert found.code == 2
    assert found.stderr.startswith(f"error: {output}")
    assert "missing.parquet" not in found.stderr
    flashtrie.build([half(output, 10)], output, force=True, min_keywords=5)
