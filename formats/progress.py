"""How long work tells how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called from any thread, often, and cheap."""

    def __call__(self, phase: str, done: int, total: int, unit: str, /) -> None:
        """`done` of `total` units, such as "bytes", of a phase of the work."""
