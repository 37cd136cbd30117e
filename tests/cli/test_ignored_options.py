"""An option that would have no effect is an error, not ignored."""

from __future__ import annotations

import pytest

from tests.cli.conftest import trie


@pytest.mark.parametrize(
    ("suite", "option"),
    [
        (suite, option)
        for suite in ("decode", "sampling")
        for option in ("--against=cpu", "--queries=5", "--save-queries=q.npz", "--plot=p.png")
    ]
    + [("decode", "--force"), ("sampling", "--force")]
    + [("sampling", option) for option in ("--bw=5", "--batch=2", "--top-k=7", "--steps=3")]
    + [("sampling", "--top-k=1000")],  # the default, but given
)
def test_options_of_another_suite(built, folder, suite, option):
    artifact = [] if suite == "sampling" else [built / "keywords.trie"]
    found = trie("bench", *artifact, "--suite", suite, option, "--device=cpu")
    assert found.code == 2
    name = option.partition("=")[0]
    assert found.stderr == f"error: {name} does not go with --suite {suite}\n"
    assert not any(folder.iterdir())


def test_sampling_has_no_artifact(built):
    found = trie("bench", built / "keywords.trie", "--suite", "sampling", "--device=cpu")
    assert found.code == 2
    assert "ARTIFACT does not go with --suite sampling" in found.stderr


@pytest.mark.parametrize(
    "option",
    [
        "--column=tokens",
        "--values=nope",
        "--tokenizer=tokenizer.json",
        "--nulls=skip",
        "--empty=error",
        "--on-conflict=min",
    ],
)
def test_verify_reads_no_input_without_against(built, option):
    found = trie("verify", built / "keywords.trie", option, "--device=cpu")
    assert found.code == 2
    name = option.partition("=")[0]
    assert found.stderr == f"error: {name} goes with --against alone\n"
    against = ["--against", built / "keywords.parquet", "--column", "tokens"]
    assert trie("verify", built / "keywords.trie", *against, "--device=cpu").code == 0


def test_a_variable_is_for_all_runs(built):
    """What it says may mean nothing in one of them."""
    words = ["verify", built / "keywords.trie", "--device=cpu"]
    assert trie(*words, TRIE_VERIFY_COLUMN="tokens").code == 0
