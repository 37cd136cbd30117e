"""What all verbs have in common, beside their options."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from flashtrie.formats.errors import UsageError


class Command(TyperCommand):
    """A verb."""

    def get_help_option(self, ctx: Any) -> Any:
        """--help, which the environment cannot give."""
        return typed(super().get_help_option(ctx))


def typed(option: TyperOption | None) -> TyperOption | None:
    """An option that is given on the command line alone.

    Else TRIE_HELP=1 would make each command print a text and end with 0, and do nothing.
    """
    if option is not None:
        option.allow_from_autoenv = False
    return option


def check_options(context: typer.Context, reason: str, *names: str) -> None:
    """Raise UsageError where one of these parameters was typed, since it would have no effect.

    A variable of the environment is for all runs, and may well mean nothing in one.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            shown = next((name for name in parameter.opts if name.startswith("--")), None)
            raise UsageError(f"{shown or parameter.metavar} {reason}")
