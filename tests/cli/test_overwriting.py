"""Nothing is overwritten without --force, and no input with it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import trie
from tests.conftest import write_parquet


@pytest.fixture
def files(built: Path, folder: Path) -> Path:
    """Each kind of input of a command, in the working directory."""
    for name in ("keywords.trie", "plain.trie", "keywords.parquet"):
        (folder / name).write_bytes((built / name).read_bytes())
    np.savez(folder / "queries.npz", tokens=[[[1]]], logprobs=np.zeros((1, 1, 1), np.float32))
    np.savez(folder / "logits.npz", logits=np.zeros((1, 3), np.float32))
    return folder


COMMANDS = [
    ("keywords.parquet", ["build", "keywords.parquet"]),
    ("keywords.parquet", ["build", "."]),
    ("keywords.trie", ["dump", "keywords.trie"]),
    ("keywords.trie", ["diff", "keywords.trie", "plain.trie"]),
    ("plain.trie", ["diff", "keywords.trie", "plain.trie"]),
    ("keywords.parquet", ["lookup", "plain.trie", "--input", "keywords.parquet"]),
    ("plain.trie", ["lookup", "plain.trie", "--input", "keywords.parquet"]),
    ("plain.trie", ["lookup", "plain.trie", "--tokens", "1,2"]),
    ("queries.npz", ["search", "plain.trie", "--queries", "queries.npz", "--device=cpu"]),
    ("plain.trie", ["search", "plain.trie", "--queries", "queries.npz", "--device=cpu"]),
    ("logits.npz", ["sample", "logits.npz", "--device=cpu"]),
]


@pytest.mark.parametrize(("output", "words"), COMMANDS)
@pytest.mark.parametrize("way", ["same", "other spelling", "hard link", "symbolic link"])
def test_an_output_is_no_input(files, output, words, way):
    path = Path(output)
    if way == "other spelling":
        path = files / "." / output
    elif way == "hard link":
        path = Path(f"linked{path.suffix}")
        os.link(output, path)
    elif way == "symbolic link":
        path = Path(f"linked{path.suffix}")
        path.symlink_to(output)
    before = Path(output).read_bytes()
    found = trie(*words, "-o", path, "--force", "--quiet")
    assert found.code == 2
    assert f"{path}: cannot write" in found.stderr
    assert "it is an input as well. Choose another output" in found.stderr
    assert Path(output).read_bytes() == before
    assert not list(files.glob(".*")) + list(files.glob("*.lock"))


def test_saved_queries_are_no_input(files):
    os.rename("plain.trie", "plain.npz")
    words = ["bench", "plain.npz", "--device=cpu", "--save-queries", "plain.npz", "--force"]
    found = trie(*words, "--quiet")
    assert found.code == 2
    assert "it is an input as well" in found.stderr


def test_the_tokenizer_is_an_input(folder):
    tokenizers = pytest.importorskip("tokenizers")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["red shoe"]}), "text.parquet")
    model = tokenizers.models.WordLevel({"[UNK]": 0, "red": 1}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save("tokenizer.json")
    words = ["build", "text.parquet", "--tokenizer", "tokenizer.json", "-o", "tokenizer.json"]
    found = trie(*words, "--force", "--quiet")
    assert found.code == 2
    assert "it is an input as well" in found.stderr
    assert (folder / "tokenizer.json").read_text().startswith("{")


@pytest.mark.parametrize("words", [["build", "keywords.parquet"], ["dump", "plain.trie"]])
def test_a_link_to_nothing_is_something(files, words):
    """As a link to where the artifact of tonight is to be put may be, and not be replaced."""
    link = files / "out.file"
    link.symlink_to("not-there")
    found = trie(*words, "-o", "out.file", "--quiet")
    assert found.code == 2
    assert "a symbolic link, to a file that does not exist. --force replaces it" in found.stderr
    assert os.readlink(link) == "not-there"
    assert trie(*words, "-o", "out.file", "--force", "--quiet").code == 0
    assert not link.is_symlink()


@pytest.mark.parametrize("text", ["", "\n", "12", "# mine\n", "12 34\n"])
def test_a_lock_of_somebody_else_stays(folder, text):
    source = write_parquet(folder / "keys.parquet", [[1, 2], [3]])
    lock = folder / "keys.trie.lock"
    lock.write_text(text)
    found = trie("build", source, "--quiet")
    assert found.code == 2
    assert found.stderr.startswith("error: keys.trie.lock: there is a file that is no lock of ours")
    assert lock.read_text() == text
    assert sorted(os.listdir()) == ["keys.parquet", "keys.trie.lock"]


def test_the_lock_of_a_dead_build_goes(folder):
    source = write_parquet(folder / "keys.parquet", [[1, 2], [3]])
    (folder / "keys.trie.lock").write_text("4194304999\n")
    (folder / ".keys.trie.lock.17.tmp").touch()  # killed before it had given its lock the name
    assert trie("build", source, "--quiet").code == 0
    assert sorted(os.listdir()) == ["keys.parquet", "keys.trie"]
