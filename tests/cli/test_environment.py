"""Options from the environment: TRIE_COMMAND_OPTION for each, but for those that are typed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import typer
import typer.main

from flashtrie.cli.main import app
from tests.cli.conftest import trie
from tests.conftest import write_parquet

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands
OPTIONS = [
    (command, option)
    for command in COMMANDS
    for parameter in COMMANDS[command].params
    for option in parameter.opts
    if option.startswith("--")
]


def variable(command: str, option: str) -> str:
    return f"TRIE_{command}_{option.removeprefix('--').replace('-', '_')}".upper()


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_each_option_has_the_variable_of_its_long_name(command, option, monkeypatch):
    """Whatever its parameter is called in Python."""
    (parameter,) = (p for p in COMMANDS[command].params if option in p.opts)
    with (
        typer.Context(GROUP, info_name="trie", auto_envvar_prefix="TRIE") as above,
        typer.Context(COMMANDS[command], info_name=command, parent=above) as context,
    ):
        assert parameter.resolve_envvar_value(context) is None
        monkeypatch.setenv(variable(command, option), "given")
        assert parameter.resolve_envvar_value(context) == "given"


def test_all_commands_and_their_options_were_looked_at():
    assert len(COMMANDS) == 11
    assert {("dump", "--output"), ("lookup", "--input"), ("bench", "--save-queries")} < {*OPTIONS}


@pytest.mark.parametrize("name", ["TRIE_VERSION", "TRIE_HELP", "TRIE_BUILD_HELP"])
def test_no_variable_turns_a_command_into_a_text(folder, name):
    """A script that exports TRIE_VERSION for itself would build nothing, and end with 0."""
    source = write_parquet(folder / "keys.parquet", [[1, 2], [3]])
    found = trie("build", source, "--quiet", **{name: "1"})
    assert found.code == 0
    assert (folder / "keys.trie").exists()
    assert found.stdout.startswith("keywords ")


def test_help_and_version_can_still_be_typed():
    assert "Commands:" in trie("--help").stdout
    assert "INPUTS" in trie("build", "--help").stdout
    assert trie("--version").stdout.startswith("flashtrie ")


def test_outputs_and_inputs_by_their_variables(built, folder):
    path = built / "keywords.trie"
    assert trie("dump", path, TRIE_DUMP_OUTPUT="dump.parquet").code == 0
    assert trie("diff", path, path, TRIE_DIFF_OUTPUT="diff.parquet").code == 0
    found = trie(
        *("lookup", path, "--json"),
        TRIE_LOOKUP_INPUT=str(built / "keywords.parquet"),
        TRIE_LOOKUP_OUTPUT="lookup.parquet",
    )
    assert found.code == 0
    assert found.json["rows"] == 8
    np.save("logits.npy", np.zeros((1, 3), np.float32))
    assert trie("sample", "logits.npy", "--device=cpu", TRIE_SAMPLE_OUTPUT="kept.npz").code == 0
    np.savez("queries.npz", tokens=[[[1]]], logprobs=np.zeros((1, 1, 1), np.float32))
    words = ["search", path, "--queries", "queries.npz", "--device=cpu"]
    assert trie(*words, TRIE_SEARCH_OUTPUT="found.parquet").code == 0
    names = {"dump.parquet", "diff.parquet", "lookup.parquet", "kept.npz", "found.parquet"}
    assert names <= {entry.name for entry in folder.iterdir()}
