"""Artifacts of every version stay readable, and version 1 is still written byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashtrie.formats.invariants import check
from flashtrie.formats.reader import open_artifact
from tests.data import make_golden
from tests.formats.keysets import smallest
from tests.formats.walk import keywords

DATA = Path(make_golden.__file__).parent


@pytest.mark.parametrize("path", sorted(DATA.glob("v1-*.trie")), ids=lambda path: path.name)
def test_version_1(path):
    expected = smallest(make_golden.rows())
    with open_artifact(path) as artifact:
        assert all(ok for _, ok, _ in check(artifact))
        assert artifact.header.tags == make_golden.TAGS
        assert artifact.header.vocab_size == make_golden.VOCAB_SIZE
        assert dict(keywords(artifact)) == expected
        # Small as it is, nothing of the format is missing in it.
        filled = {name for name, array in artifact.sections.items() if len(array)}
        empty = set(artifact.sections) - filled
        indexed = artifact.header.tails == "indexed"
        assert all(name.startswith("store_end_" if indexed else "tail_index_") for name in empty)


def test_recipe(tmp_path):
    make_golden.make(tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in DATA.glob("v1-*.trie")}
    assert len(written) == len(make_golden.KINDS)
