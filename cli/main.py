"""The entry point: `trie` and its commands."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flashtrie.cli import (
    bench,
    build,
    diff,
    dump,
    generate,
    info,
    load,
    lookup,
    sample,
    search,
    verify,
)
from flashtrie.cli.command import Command, typed
from flashtrie.cli.options import option
from flashtrie.cli.run import StdoutClosed, run


class Commands(TyperGroup):
    """The group of all commands: whatever a run raises becomes a message and an exit code."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> Any:
        """Run and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        options = {"prog_name": "trie"} | options | {"standalone_mode": False}
        main = super().main
        command = partial(main, arguments, *rest, **options)
        sys.exit(run(command, arguments, ends_process=args is None))

    def invoke(self, context: Any) -> Any:
        """Call the command. Typer would end with 1 where nobody reads stdout."""
        try:
            return super().invoke(context)
        except BrokenPipeError as error:
            raise StdoutClosed from error

    def get_help_option(self, ctx: Any) -> Any:
        """--help, which the environment cannot give."""
        return typed(super().get_help_option(ctx))


app = typer.Typer(
    name="trie",
    cls=Commands,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "TRIE"},
    epilog="Each option is also read from TRIE_COMMAND_OPTION, such as TRIE_BUILD_MEMORY.",
)

_CLASSES: dict[Any, Any] = {verify.verify: verify.VerifyCommand}
for _command in (
    generate.generate,
    build.build,
    info.info,
    verify.verify,
    lookup.lookup,
    dump.dump,
    diff.diff,
    load.load,
    search.search,
    sample.sample,
    bench.bench,
):
    app.command(cls=_CLASSES.get(_command, Command))(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from flashtrie import __version__

        print(f"flashtrie {__version__}")
        raise typer.Exit


@app.callback()
def trie(
    context: typer.Context,
    version: Annotated[
        bool,
        option(
            "Print the version.",
            None,
            "--version",
            is_eager=True,
            callback=_print_version,
            allow_from_autoenv=False,
        ),
    ] = False,
) -> None:
    """Build, check and search tries of token sequences for generative retrieval."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(2)
