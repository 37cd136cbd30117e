"""Write docs/commands.md from the help of each command: python docs/commands.py."""

from __future__ import annotations

import os
from pathlib import Path

PAGE = Path(__file__).with_name("commands.md")
_WIDTH = "80"


def page() -> str:
    """The page: what --help prints, for `trie` and each command."""
    os.environ["COLUMNS"] = _WIDTH
    from typer.testing import CliRunner

    from flashtrie.cli.main import app

    runner = CliRunner()

    def shown(*words: str) -> str:
        text = runner.invoke(app, [*words, "--help"], prog_name="trie").stdout.strip()
        return f"```\n{text}\n```\n"

    parts = ["# Commands\n\n`docs/commands.py` writes this page from `--help`.\n", shown()]
    for command in app.registered_commands:
        assert command.callback
        name = command.callback.__name__
        parts.append(f"## trie {name}\n\n{shown(name)}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
