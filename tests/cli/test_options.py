"""What the texts of options mean, where defaults come from, and the environment."""

from __future__ import annotations

import pytest

from flashtrie.cli import options
from flashtrie.formats.errors import UsageError
from tests.cli.conftest import trie


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("12B", 12),
        ("2GiB", 2 << 30),
        ("2 GiB", 2 << 30),
        ("500MB", 500_000_000),
        ("1.5kib", 1536),
        ("1e9", 10**9),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes(text, size):
    assert options.parse_size("--memory", text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "2G", "1 2", "1e", "GiB", "nan", "1e999"])
def test_no_sizes(text):
    with pytest.raises(UsageError, match="--memory"):
        options.parse_size("--memory", text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("1000000", 10**6), ("1e6", 10**6), ("2.2e6", 2_200_000), ("1_000", 1000)],
)
def test_counts(text, count):
    assert options.parse_count("--keywords", text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1MB", "inf", "1e999"])
def test_no_counts(text):
    with pytest.raises(UsageError, match="--keywords"):
        options.parse_count("--keywords", text)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("0", 0), ("100%", 1)])
def test_shares(text, share):
    assert options.parse_share("--max-shrink", text) == share


@pytest.mark.parametrize("text", ["", "%", "5", "-1%", "101%", "nan"])
def test_no_shares(text):
    with pytest.raises(UsageError, match="--max-shrink"):
        options.parse_share("--max-shrink", text)


def test_tags():
    assert options.parse_tags(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("tags", [["a"], ["=1"], ["a=1", "a=2"]])
def test_no_tags(tags):
    with pytest.raises(UsageError, match="--tag"):
        options.parse_tags(tags)


@pytest.mark.parametrize("text", ["", "1,", "a", "-1", "1 2", str(2**32)])
def test_no_tokens(text):
    with pytest.raises(UsageError, match="--tokens"):
        options.parse_tokens(text)


def test_the_only_artifact_here_is_the_default(built, folder):
    (folder / "a.trie").write_bytes((built / "keywords.trie").read_bytes())
    (folder / "folder.trie").mkdir()
    assert trie("info", "--json").json["tags"] == {"kind": "test"}


def test_the_environment_names_the_artifact(built):
    assert trie("info", "--json", TRIE_ARTIFACT=str(built / "keywords.trie")).code == 0


def test_an_argument_comes_before_the_environment(built):
    found = trie("info", built / "plain.trie", "--json", TRIE_ARTIFACT=str(built / "keywords.trie"))
    assert found.json["tags"] == {}


def test_no_artifact_says_what_was_looked_for(folder):
    found = trie("info")
    assert found.code == 2
    assert "TRIE_ARTIFACT is not set" in found.stderr
    assert "no *.trie file here" in found.stderr


def test_two_artifacts_are_named(folder):
    for name in ("b.trie", "a.trie"):
        (folder / name).touch()
    found = trie("info")
    assert found.code == 2
    assert "more than one *.trie file here: a.trie, b.trie" in found.stderr


def test_options_from_the_environment(built):
    source = str(built / "keywords.parquet")
    environment = {"TRIE_BUILD_TAG": "a=1 b=2", "TRIE_BUILD_VOCAB_SIZE": "1e3"}
    assert trie("build", source, TRIE_BUILD_JSON="1", **environment).json["output"]
    made = trie("info", "--json").json
    assert made["tags"] == {"a": "1", "b": "2"}
    assert made["vocab_size"] == 1000


def test_errors_are_json_when_the_environment_says_so():
    found = trie("info", TRIE_INFO_JSON="true")
    assert found.code == 2
    assert found.json["exit_code"] == 2
