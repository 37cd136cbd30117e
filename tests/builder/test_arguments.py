"""What cannot be right is refused before anything is read, in Python as on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashtrie.builder.build import build
from flashtrie.builder.source import Source
from flashtrie.formats.errors import UsageError
from tests.conftest import write_parquet


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_shrink": 5}, "--max-shrink cannot be 5. Give 0 to 1"),
        ({"max_shrink": -0.1}, "--max-shrink cannot be -0.1"),
        ({"max_shrink": float("nan")}, "--max-shrink cannot be nan"),
        ({"min_keywords": -3}, "--min-keywords cannot be -3"),
        ({"tags": {"n": 1}}, "1: a tag that is not Unicode text"),
        ({"tags": {2: "n"}}, "2: a tag that is not Unicode text"),
        ({"tags": {"n": b"x"}}, "b'x': a tag that is not Unicode text"),
        ({"tags": {"n": "\udc80"}}, "a tag that is not Unicode text"),
        ({"tags": {"n": "x" * (1 << 20)}}, "the tags are too long: they take 1,048,588 bytes"),
        ({"vocab_size": 0}, "--vocab-size cannot be 0"),
        ({"threads": 0}, "--threads cannot be 0"),
        ({"on_conflict": "max"}, "--on-conflict cannot be 'max'"),
    ],
)
def test_options_that_cannot_be_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    source = write_parquet(tmp_path / "keys.parquet", [[1, 2], [3]])
    monkeypatch.setattr(Source, "open", lambda *_: pytest.fail("the input was looked at"))
    with pytest.raises(UsageError) as caught:
        build([source], tmp_path / "keys.trie", **options)
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["keys.parquet"]


def test_tags_that_are_just_short_enough(tmp_path: Path) -> None:
    """What the first check lets pass has room in the header, however large its numbers are."""
    source = write_parquet(tmp_path / "keys.parquet", [[1, 2], [3]])
    tags = {"n": "x" * ((1 << 20) - (16 << 10) - 12)}
    build([source], tmp_path / "keys.trie", tags=tags)
    with pytest.raises(UsageError, match="too long"):
        build([source], tmp_path / "more.trie", tags={"n": tags["n"] + "x"})


def test_one_name_is_no_list_of_names(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "keys.parquet", [[1, 2], [3]])
    for inputs in (source, str(source)):
        with pytest.raises(UsageError, match="inputs are a list of names"):
            build(inputs, tmp_path / "keys.trie")  # type: ignore[arg-type]
