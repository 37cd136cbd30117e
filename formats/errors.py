"""The errors of the library. Each says what failed, where, why, and what to do about it."""

from __future__ import annotations


class FlashTrieError(Exception):
    """A failure that the user can act on: `what` failed, `where`, the `cause`, and a `hint`.

    The command line prints these in one place and ends with `exit_code`: 2 for bad usage or
    input, 1 where a check said no.
    """

    exit_code = 2

    def __init__(self, what: str, where: str = "", cause: str = "", hint: str = "") -> None:
        """Each part is a phrase without a full stop; all but `what` may be empty."""
        super().__init__(what, where, cause, hint)
        self.what = what
        self.where = where
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        """One line: where, what, cause, and the hint as a sentence of its own."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.cause:
            text += f": {self.cause}"
        return f"{text}. {self.hint}" if self.hint else text


class UsageError(FlashTrieError):
    """An option or argument that cannot be right."""


class InputError(FlashTrieError):
    """Input data that cannot be read or breaks a rule."""


class OutputError(FlashTrieError):
    """An output that cannot be written."""


class ResourceError(FlashTrieError):
    """Too little memory or disk space; says need and free."""


class ArtifactError(FlashTrieError):
    """A file that is not a right artifact of a known version."""


class NewerFormatError(FlashTrieError):
    """An intact artifact of a format version that this program does not know."""


class ArtifactChanged(FlashTrieError):
    """The file behind an open artifact was changed in place."""


class CheckFailed(FlashTrieError):
    """A check that was asked for said no."""

    exit_code = 1
