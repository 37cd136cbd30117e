"""docs/queries.md and docs/serving.md: commands, Python and tables are right; links lead somewhere.

What takes a GPU in them runs in tests/gpu/test_pages.py.
"""

from __future__ import annotations

import re
import threading
import time
import tomllib
import weakref
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flashtrie
from flashtrie.builder.generate import generate
from tests.cli.conftest import trie
from tests.cli.pages import ROOT, blocks, code, commands, run, table
from tests.conftest import write_parquet

QUERIES, SERVING = "docs/queries.md", "docs/serving.md"
PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
)


def test_the_page_about_queries(folder, capsys):
    """From top to bottom in one folder; a block without a language is what was printed."""
    names: dict[str, Any] = {}
    for block in blocks(QUERIES):
        if block.kind == "python" and "to_device" not in block.text:
            capsys.readouterr()
            exec(block.text, names)
        elif block.kind == "sh":
            for command in commands(block.text):
                done = run(command, folder)
                assert done.returncode == 0, (command, done.stderr)
        elif block.kind == "":
            assert capsys.readouterr().out == block.text
    assert capsys.readouterr().out == "[71 70 73 72]\n"

    columns = {name.strip("`"): kind for name, kind, _ in table(QUERIES, "column", "type", "is")}
    schema = pq.read_schema(folder / "results.parquet")
    kinds = {field.name: str(field.type) for field in schema}
    kinds["tokens"] = re.sub(r"\w+: | not null", "", kinds["tokens"])
    assert columns == kinds | {"score": "float32"}
    assert schema.field("score").type == pa.float32()
    of_result = [name.strip("`") for name, *_ in table(QUERIES, "field", "shape, dtype", "is")]
    assert of_result == [field.name for field in fields(flashtrie.SearchResult)]

    # What the page says of keywords that begin others.
    with flashtrie.open("library.trie") as opened:
        given = np.load("queries.npz")
        found = opened.search(given["tokens"], given["logprobs"], beam_width=10)
    assert found.tokens[: found.lengths[0]].tolist() == [12, 7]


@pytest.fixture
def printed(folder: Path) -> dict[str, Any]:
    """By command of the table, the object that it prints for a small key set."""
    generate("keys", 20_000)
    values = write_parquet(folder / "valued.parquet", [[1, 2, 3], [1, 2], [4]], [7, 8, 9])
    np.save("logits.npy", np.zeros((2, 9), np.float32))
    small = ["--bw", "5", "--queries", "2", "--steps", "4", "--top-k", "200"]
    given: dict[str, list[Any]] = {
        "generate": ["generate", "other", "--keywords", "10"],
        "build": ["build", "keys"],
        "build --dry-run": ["build", "keys", "--dry-run"],
        "info": ["info", "keys.trie"],
        "verify": ["verify", "keys.trie", "--against", "keys"],
        "lookup": ["lookup", "keys.trie", "--tokens", "0"],
        "dump -o": ["dump", "keys.trie", "-o", "dump.parquet"],
        "diff": ["diff", "keys.trie", "keys.trie"],
        "bench": ["bench", "keys.trie", *small, "--against", "cpu", "--save-queries", "q.npz"],
        "search": ["search", "keys.trie", "--queries", "q.npz", "--bw", "5"],
        "search -o": ["search", "keys.trie", "--queries", "q.npz", "-o", "results.parquet"],
        "sample": ["sample", "logits.npy", "--seed", "1"],
        "an error": ["build", values, "-o", "no/folder/out.trie"],
    }
    return {
        name: trie(*words, "--json", "--quiet", TRIE_DEVICE="cpu").json
        for name, words in given.items()
    }


def test_the_keys_of_json(printed):
    rows = {
        name.strip("`"): cells for name, *cells in table(QUERIES, "command", "keys", "in each of")
    }
    assert set(rows) == {*printed, "load"}  # which takes a GPU
    for name, (keys, within) in rows.items():
        if name == "load":
            continue
        assert code(keys) == list(printed[name]), name
        nested, *names = code(within) or [""]
        if not nested:
            continue
        part = printed[name][nested]
        part = part[0] if isinstance(part, list) else part
        assert [each for each in names if not each.startswith("--")] == list(part), name


def serve(text: str, names: dict[str, Any]) -> None:
    """The Python of the page, where a trie in memory stands for the one on the GPU."""
    exec(text.replace("opened.to_device()", "flashtrie.open(self.path)"), names)


def test_the_page_about_serving(folder, capsys):
    rows = [[number % 5, number] for number in range(50)]
    build(rows)
    names: dict[str, Any] = {"warm_up": lambda opened: opened.lookup([[0]])}
    for block in blocks(SERVING):
        if block.kind == "python":
            serve(block.text, names)
    exercise(names, rows, capsys)


def build(rows: list[list[int]]) -> None:
    """keywords.trie in the working directory, by rename where there is one."""
    source = write_parquet(Path("rows.parquet"), rows, list(range(len(rows))))
    flashtrie.build([source], "keywords.trie", values="value", force=True)


def exercise(names: dict[str, Any], rows: list[list[int]], capsys: Any) -> None:
    """Swap the file below the page's process: the next one, then one that is damaged."""
    served, stop = names["served"], names["stop"]
    try:
        query = np.array([[[3], [100]]]), np.zeros((1, 2, 1), np.float32)
        assert not served.refresh()
        assert len(names["answer"](*query).key_ids) == 0

        old = weakref.ref(served.trie)
        build([*rows, [3, 100]])
        assert len(names["answer"](*query).key_ids) == 0
        assert served.refresh() and not served.refresh()
        assert names["answer"](*query).values.tolist() == [len(rows)]
        assert old() is None  # nothing holds it any more

        content = bytearray(Path("keywords.trie").read_bytes())
        content[100] ^= 1
        Path("damaged").write_bytes(content)
        Path("damaged").replace("keywords.trie")
        watching = threading.Thread(target=names["watch"], args=(served, stop, 0.01))
        watching.start()
        end = time.monotonic() + 60
        said = ""
        while "stays in use" not in said and time.monotonic() < end:
            said += capsys.readouterr().out
            time.sleep(0.01)
        assert "the old artifact stays in use: " in said
        assert names["answer"](*query).values.tolist() == [len(rows)]
    finally:
        stop.set()
    watching.join()


def test_the_commands_of_installing(tmp_path, monkeypatch):
    """A wheel is made and installed, into a folder of its own and without its dependencies."""
    install, wheel, load = (block.text for block in blocks(SERVING) if block.kind == "sh")
    assert commands(install) == ['pip install ".[gpu]"']
    assert commands(load) == ["trie load keywords.trie"]
    alone = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_TARGET": str(tmp_path / "site")}
    for command in commands(wheel):
        done = run(command.replace("dist", str(tmp_path / "dist"), 1), ROOT, **alone)
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "site" / "flashtrie" / "cli" / "main.py").exists()


def test_extras_that_are_named_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [*PAGES, "gpu/devices.py", "cpu/plot.py", "builder/tokenizer.py", "cli/bench.py"]
    text = "".join((ROOT / name).read_text() for name in sources)
    named = set(re.findall(r'(?:"\.|flashtrie|whl\)|leave `)\[(\w+)\]', text))
    assert named == set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", (ROOT / page).read_text()):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in [head.lower().replace(" ", "-") for head in heads], anchor
