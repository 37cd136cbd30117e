"""Where the command line begins, before anything that takes time is imported."""

from __future__ import annotations

import signal


def main() -> None:
    """Run `trie`.

    Until cli.run has its handlers SIGINT ends the process, as SIGTERM does: there is nothing yet to
    clean up, and the exception that Python raises instead can get lost in the middle of an import.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from flashtrie.cli.main import app

    app(prog_name="trie")
