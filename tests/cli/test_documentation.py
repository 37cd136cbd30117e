"""Every command and option has help, and docs/commands.md is what --help prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import typer

from flashtrie.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_page_of_commands_is_what_help_prints(monkeypatch):
    spec = importlib.util.spec_from_file_location("commands", ROOT / "docs" / "commands.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("COLUMNS", "80")
    assert module.PAGE.read_text() == module.page(), "run python docs/commands.py"


def test_the_commands():
    assert list(COMMANDS) == [
        "generate",
        "build",
        "info",
        "verify",
        "lookup",
        "dump",
        "diff",
        "load",
        "search",
        "sample",
        "bench",
    ]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_and_option_has_help(name):
    command = COMMANDS[name]
    assert command.help
    options = [parameter for parameter in command.params if parameter.name != "help"]
    assert {"--json", "--quiet"} <= {name for option in options for name in option.opts}
    for option in options:
        assert option.help, f"{name} {option.name}"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_one_short_file(name):
    lines = (ROOT / "cli" / f"{name}.py").read_text().splitlines()
    assert len(lines) <= 150
