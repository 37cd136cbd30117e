"""How a run ends: errors as one message, exit codes, signals. All of it happens here."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from flashtrie.cli.output import discard_stdout, print_error
from flashtrie.formats.errors import FlashTrieError, OutputError, ResourceError, UsageError

_COMPILER = ("numba", "llvmlite")
_NOT_TO_BE_CUT = ("__del__", "__enter__", "__exit__")
_AGAIN_SECONDS = 0.005


class Stopped(BaseException):
    """SIGINT or SIGTERM. Not an Exception: no handler on the way up takes it for a failure."""

    def __init__(self, number: int) -> None:
        """Keep the number of the signal."""
        super().__init__(number)
        self.number = number


class StdoutClosed(BaseException):
    """Nobody reads what is printed: no failure, and nothing is left to do."""


def run(command: Callable[[], Any], arguments: Sequence[str], *, ends_process: bool = False) -> int:
    """Run a command and return its exit code: 0 to 2, or 128 and the number of a signal.

    Handlers of signals are put back, or where the process ends now, signals are ignored: what was
    done is done.
    """
    handlers = {number: _catch(number) for number in (signal.SIGINT, signal.SIGTERM)}
    alarm = signal.getsignal(signal.SIGALRM)
    try:
        return _code(command, arguments)
    except Stopped as stopped:  # of the command, or of what handles its errors
        return 128 + stopped.number
    finally:
        if any(handler is not None for handler in handlers.values()):
            signal.setitimer(signal.ITIMER_REAL, 0)  # what waits has come too late
            signal.signal(signal.SIGALRM, alarm)
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, signal.SIG_IGN if ends_process else handler)


def _code(command: Callable[[], Any], arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments or _set_by_environment(arguments)
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, StdoutClosed):
        discard_stdout()
        return 0
    except Exception as error:
        if os.environ.get("TRIE_DEBUG") == "1":
            import traceback

            traceback.print_exc()
        told = _told(error, _command(arguments))
        # What could not be written is still in the buffer, and the interpreter's last flush would
        # end the process with a code of its own.
        _flush_or_discard()
        print_error(told, as_json)
        _flush_or_discard()
        return told.exit_code


def _flush_or_discard() -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        discard_stdout()


def _told(error: Exception, command: str) -> FlashTrieError:
    """Any exception as the error that is printed."""
    if isinstance(error, FlashTrieError):
        return error
    if hasattr(error, "format_message"):  # the parser's
        return _usage(error)
    if isinstance(error, MemoryError):
        hint = "Lower --memory" if command == "build" else "Free some, or use a larger machine"
        return ResourceError("not enough memory", cause=str(error), hint=hint)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError("cannot write", str(error.filename or ""), error.strerror or "")
    return FlashTrieError(
        "internal error",
        cause=f"{type(error).__name__}: {error}",
        hint="TRIE_DEBUG=1 shows where",
    )


def _usage(error: Any) -> UsageError:
    command = getattr(getattr(error, "ctx", None), "command_path", "trie")
    message = error.format_message().strip().rstrip(".").replace("Value error, ", "")
    return UsageError(message, hint=f"See {command} --help")


def _catch(number: int) -> Any:
    """Make a signal raise Stopped, once. Returns the handler to put back, if any was set."""
    try:
        if signal.getsignal(number) == signal.SIG_IGN:  # as in `trie ... &` of a script
            return None
        return signal.signal(number, _stop)
    except ValueError:  # not the main thread
        return None


def _stop(number: int, frame: FrameType | None) -> None:
    if _holds(frame):
        signal.signal(signal.SIGALRM, lambda _, frame: _stop(number, frame))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    for other in (signal.SIGINT, signal.SIGTERM):  # what cleans up now is not to be disturbed
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


def _holds(frame: FrameType | None) -> bool:
    """Whether what runs may hold a lock that an exception would leave held, or swallows it.

    A finalizer swallows it. A context manager written in Python has taken its lock a moment before
    its block begins, and for that moment gives it back only if it is left alone. The compiler has
    such locks, and finalizers that take them.
    """
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in _COMPILER or frame.f_code.co_name in _NOT_TO_BE_CUT:
            return True
        frame = frame.f_back
    return False


def _set_by_environment(arguments: Sequence[str]) -> bool:
    value = os.environ.get(f"TRIE_{_command(arguments).upper()}_JSON", "")
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def _command(arguments: Sequence[str]) -> str:
    """The verb, if there is one."""
    return next((word for word in arguments if not word.startswith("-")), "")
