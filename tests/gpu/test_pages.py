"""What takes a GPU in docs/queries.md, docs/search.md and docs/serving.md."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flashtrie
from flashtrie.gpu import devices
from tests.cli.pages import blocks, code, table
from tests.cli.test_pages import build, exercise
from tests.conftest import write_parquet
from tests.gpu.conftest import assert_same

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def library() -> Any:
    """The artifact of docs/queries.md."""
    keywords = [[12, 7], [12, 7, 93], [12, 8], [4]]
    source = write_parquet(Path("library.parquet"), keywords, [70, 71, 72, 73])
    flashtrie.build([source], "library.trie", values="value")
    return flashtrie.open("library.trie")


GIVEN = {
    "tokens": np.array([[[12, 4], [7, 8], [93, -1]]]),
    "logprobs": np.log(np.array([[[0.6, 0.4], [0.7, 0.3], [0.9, 1.0]]], np.float32)),
}


@pytest.mark.parametrize("page", ["docs/queries.md", "docs/search.md"])
def test_the_python_for_the_device(page):
    import cupy

    (text,) = (b.text for b in blocks(page) if b.kind == "python" and "to_device" in b.text)
    with library() as trie:
        names: dict[str, Any] = GIVEN | {
            "trie": trie,
            "logits": cupy.asarray(np.zeros((1, 3, 100), np.float32)),
            "torch": SimpleNamespace(from_dlpack=lambda array: array),
        }
        exec(text, names)
        expected = trie.search(**GIVEN, beam_width=10)
    found = names.get("on_device", names["found"])
    assert_same(found.to_host(), expected)


def test_the_padding_of_results_on_the_device():
    with library() as trie:
        found = trie.to_device().search_on_device(**GIVEN, beam_width=10)
    (count,) = found.counts.get().tolist()
    assert count == 4
    padding = {
        code(field)[0]: cell.partition(",")[0]
        for field, _, cell in table("docs/queries.md", "field", "shape, dtype", "padding")
    }
    assert padding.pop("counts") == ""
    assert set(padding) == {"key_ids", "scores", "lengths", "tokens", "values"}
    for name, shown in padding.items():
        behind = getattr(found, name).get()[0, count:]
        assert (behind == float(shown)).all(), name
    shortest = found.tokens.get()[0][found.lengths.get()[0] == 1]
    assert shortest[0].tolist() == [4, 4294967295, 4294967295]


def test_the_page_about_serving(capsys):
    assert devices.missing() is None
    rows = [[number % 5, number] for number in range(50)]
    build(rows)
    names: dict[str, Any] = {"warm_up": lambda trie: trie.search(**GIVEN)}
    for block in blocks("docs/serving.md"):
        if block.kind == "python":
            exec(block.text, names)
    exercise(names, rows, capsys)
