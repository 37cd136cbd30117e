"""Verify against the source: the artifact has its keywords, no other, and their values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.threads import Workers
from flashtrie.cpu.trie import Trie
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.invariants import Check
from flashtrie.formats.progress import Progress

I64 = npt.NDArray[np.int64]


class Rows(Protocol):
    """Keywords of the source: flat tokens, offsets [rows + 1], values [rows] or None."""

    @property
    def tokens(self) -> npt.NDArray[np.uint32]:
        """Tokens of all rows."""

    @property
    def offsets(self) -> I64:
        """Where each row begins and ends."""

    @property
    def values(self) -> I64 | None:
        """The value of each row."""


def verify_against(
    trie: Trie,
    parts: Sequence[Callable[[], Iterable[Rows]]],
    rows: int,
    *,
    valued: bool,
    one_value: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Check]:
    """Three checks: source, keywords, values. A lookup a row, and 2 bytes a keyword.

    Each of `parts` reads a part of the source, about `rows` rows in all; threads take them in
    turn. `valued` says that the source has values; with `one_value` a keyword may have no other
    than its smallest.
    """
    source = _Source(trie, valued, one_value, rows, progress)
    workers = Workers()
    try:
        workers.run(lambda i: source.read(parts[i]), len(parts), threads or usable_cores())
    finally:
        workers.close()
    return source.checks()


class _Source:
    """What was seen of the source so far."""

    def __init__(
        self, trie: Trie, valued: bool, one_value: bool, rows: int, progress: Progress | None
    ) -> None:
        self._trie = trie
        self._valued = valued
        self._one_value = one_value
        self._total = rows
        self._progress = progress
        self._lock = threading.Lock()
        self._rows = 0
        self._absent = 0
        self._absent_row: list[int] = []
        self._other_values = 0
        self._other_key = -1
        # Bytes, not bits: threads may set neighbours at the same time.
        self._seen = np.zeros(len(trie), np.bool_)
        self._value_seen = np.zeros(len(trie) if self._compare_values() else 0, np.bool_)

    def _compare_values(self) -> bool:
        return self._valued and bool(self._trie.artifact.header.values)

    def read(self, part: Callable[[], Iterable[Rows]]) -> None:
        for batch in part():
            key_ids = self._trie.lookup_flat(batch.tokens, batch.offsets)
            found = key_ids >= 0
            present = key_ids if found.all() else key_ids[found]
            self._seen[present] = True
            with self._lock:
                self._rows += len(key_ids)
                if len(present) < len(key_ids):
                    self._absent += len(key_ids) - len(present)
                    row = int(np.argmin(found))
                    span = slice(batch.offsets[row], batch.offsets[row + 1])
                    self._absent_row = self._absent_row or batch.tokens[span].tolist()
                done = self._rows
            if batch.values is not None and self._compare_values():
                self._read_values(present, batch.values[found])
            if self._progress is not None:
                self._progress("against", done, self._total, "rows")

    def _read_values(self, key_ids: I64, values: I64) -> None:
        stored = self._trie.values(key_ids)
        assert stored is not None
        self._value_seen[key_ids[values == stored]] = True
        wrong = values != stored if self._one_value else values < stored
        rows = np.flatnonzero(wrong)
        if len(rows):
            with self._lock:
                self._other_values += len(rows)
                self._other_key = int(key_ids[rows[0]])

    def checks(self) -> list[Check]:
        return [self._check_source(), self._check_keywords(), self._check_values()]

    def _check_source(self) -> Check:
        if not self._absent:
            return Check("source", True, f"all {self._rows:,} rows are in the artifact")
        detail = f"{self._absent:,} of {self._rows:,} rows are not in the artifact, such as "
        return Check("source", False, detail + _shown(self._absent_row))

    def _check_keywords(self) -> Check:
        missing = len(self._seen) - int(np.count_nonzero(self._seen))
        if not missing:
            return Check("keywords", True, f"all {len(self._seen):,} keywords are in the source")
        example = self._trie.keyword(int(np.argmin(self._seen))).tolist()
        detail = f"{missing:,} keywords are not in the source, such as {_shown(example)}"
        return Check("keywords", False, detail)

    def _check_values(self) -> Check:
        stored = bool(self._trie.artifact.header.values)
        if stored != self._valued:
            has, lacks = ("artifact", "source") if stored else ("source", "artifact")
            detail = f"the {has} has values, the {lacks} has none"
            # Without --values the source was not asked for any.
            return Check("values", stored, f"not compared: {detail}" if stored else detail)
        if not stored:
            return Check("values", True, "there are none")
        if self._other_values:
            shown = _shown(self._trie.keyword(self._other_key).tolist())
            kind = "another" if self._one_value else "a smaller"
            detail = f"{self._other_values:,} rows have {kind} value than stored, such as {shown}"
            return Check("values", False, detail)
        wrong = np.flatnonzero(self._seen & ~self._value_seen)
        if len(wrong):
            shown = _shown(self._trie.keyword(int(wrong[0])).tolist())
            detail = f"{len(wrong):,} values are not in the source, such as that of {shown}"
            return Check("values", False, detail)
        return Check("values", True, "all are the smallest of the source")


def _shown(tokens: list[int]) -> str:
    """A keyword for a message, cut where it is long."""
    text = ", ".join(map(str, tokens[:12]))
    return f"[{text}, ... {len(tokens)} tokens]" if len(tokens) > 12 else f"[{text}]"
