"""Verify, third part: labels, tails, store and values say a trie as the builder makes it.

Runs once bitmaps and directories are proved, and takes ranks from them. Memory, besides a few MB
a thread: one byte per token of the alphabet; for an indexed artifact 16 bytes per 64 tokens and
9 per tail of the store.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from flashtrie.formats import bits
from flashtrie.formats.jit import jit
from flashtrie.formats.payload import Coded, Payload, coded_arrays, level_bitmaps, root
from flashtrie.formats.schema import BLOCK_BITS, COLUMN
from flashtrie.formats.store import IndexedStore, TailStore
from flashtrie.formats.structure import Report, unused_bits

Task = Callable[[Report], None]

# Elements of a piece, a multiple of BLOCK_BITS.
PIECE = 1 << 17


class Content:
    """Checks of one artifact, as tasks for threads, and what they find out together."""

    def __init__(self, payload: Payload) -> None:
        """Reads the end bits of an indexed store; nothing else yet."""
        self._payload = payload
        self._artifact = payload.artifact
        self._header = payload.artifact.header
        self._lock = threading.Lock()
        self._used = np.zeros(self._header.alphabet_size, np.bool_)
        self._longest = 0
        self._longest_value = 0
        self._smallest_value = 2**64
        self._high_bits: dict[tuple[str, str], int] = {}
        indexed = self._header.tails == "indexed"
        self._store = IndexedStore(payload) if indexed else TailStore(payload)

    def tasks(self) -> Iterator[Task]:
        """Independent checks, all but those of `last_tasks`."""
        yield self._check_alphabet
        yield self._check_lengths
        for coded in coded_arrays(self._artifact):
            for start in range(0, coded.size, PIECE):
                yield functools.partial(self._check_coded, coded, start)
        for d in range(1, self._header.levels):
            for start in range(0, level_bitmaps(self._artifact, d)["louds"].size, PIECE):
                yield functools.partial(self._check_children, d, start)
        for start in range(0, self._header.store_tokens, PIECE):
            yield functools.partial(self._check_store, start)
        for start in range(0, self._header.values, PIECE):
            yield functools.partial(self._check_values, start)

    def last_tasks(self) -> Iterator[Task]:
        """Checks that want all others done and right; `finish` comes after them."""
        for coded in coded_arrays(self._artifact):
            if coded.prefix == "store" and isinstance(self._store, IndexedStore):
                for start in range(0, coded.size, PIECE):
                    yield functools.partial(self._check_order, coded, start)

    def finish(self, report: Report) -> None:
        """What only all tasks together can tell."""
        header = self._header
        if not self._used.all():
            unused = int(np.argmin(self._used))
            report("alphabet", f"rank {unused:,} occurs in no keyword")
        if self._longest != header.max_length:
            cause = f"the longest keyword has {self._longest} tokens"
            report("max_length", f"{cause} where {header.max_length} are stated")
        for coded in coded_arrays(self._artifact):
            found, stated = self._high_bits[coded.where, coded.prefix], coded.coding.high_bits
            if found != stated:
                where = f"{coded.where}, {coded.prefix}_high"
                report("codings", f"{where}: {found} bits are needed where {stated} are stated")
        if header.values:
            self._finish_values(report)

    def _check_alphabet(self, report: Report) -> None:
        alphabet = self._payload.read("alphabet", 0, self._header.alphabet_size)
        largest = int(alphabet.max())
        if largest >= self._header.vocab_size:
            report("alphabet", f"token {largest:,} with vocab_size {self._header.vocab_size:,}")
        tokens = np.sort(alphabet)
        for i in np.flatnonzero(tokens[1:] == tokens[:-1])[:1]:
            report("alphabet", f"token {tokens[i]:,} has two ranks")
        first = root(self._artifact)
        for start in range(0, first.size, PIECE):
            ranks = np.flatnonzero(self._payload.flags(first, start, start + PIECE)) + start
            self._use(ranks.view(np.uint64))

    def _check_lengths(self, report: Report) -> None:
        """Lengths that follow from the level table: leaves without tails, tails of one token."""
        for d, row in enumerate(self._header.level_table, 1):
            nodes, inner, tails, long_tails = (
                int(row[COLUMN[name]]) for name in ("nodes", "inner", "tails", "long_tails")
            )
            if nodes - inner > tails:
                self._reach(d)
            if tails > long_tails:
                self._reach(d + 1)

    def _check_coded(self, coded: Coded, start: int, report: Report) -> None:
        """Elements below their limit, coded as they should be, and what else holds for the kind."""
        # Labels are compared with the one before: take a block more.
        first = max(start - BLOCK_BITS, 0) if coded.prefix == "label" else start
        stop = min(start + PIECE, coded.size)
        values, highs = self._payload.values(coded, first, stop)
        where = f"{coded.where}, {coded.prefix}"
        if len(highs) and not highs.all():
            report("codings", f"{where}_high: a high part from element {first:,} on is zero")
        key = coded.where, coded.prefix
        needed = int(highs.max()).bit_length() if len(highs) else 0
        with self._lock:
            self._high_bits[key] = max(self._high_bits.get(key, 0), needed)
        check = {"label": "labels", "tail_token": "tails", "tail_index": "tails"}
        for i in np.flatnonzero(values >= np.uint64(coded.limit))[:1].tolist():
            cause = f"element {first + i:,} is {values[i]:,}, not below {coded.limit:,}"
            report(check.get(coded.prefix, "store"), f"{where}: {cause}")
            return
        if coded.prefix == "tail_index":
            assert isinstance(self._store, IndexedStore)
            self._reach(self._store.use(coded.level, values.astype(np.int64), start, report))
            return
        self._use(values)
        if coded.prefix == "label":
            louds = level_bitmaps(self._artifact, coded.level - 1)["louds"]
            begins = self._payload.flags(louds, first, stop)
            wrong = ~begins[1:] & (values[1:] <= values[:-1])
            for i in np.flatnonzero(wrong)[:1].tolist():
                cause = f"node {first + i + 1:,} does not rise above its sibling"
                report("labels", f"{coded.where}: {cause}")

    def _check_children(self, d: int, start: int, report: Report) -> None:
        """An inner node has two keywords below it, or ends one: an only child is no bare leaf."""
        above, below = (level_bitmaps(self._artifact, level) for level in (d, d + 1))
        louds = above["louds"]
        stop = min(start + PIECE, louds.size)
        begins = np.ones(stop - start + 1, np.bool_)  # behind the last child begins the next
        bits_read = self._payload.flags(louds, start, stop + 1)
        begins[: len(bits_read)] = bits_read
        only = begins[:-1] & begins[1:] & ~self._payload.flags(below["inner"], start, stop)
        first = self._payload.rank(louds, start)
        parents = first + np.cumsum(begins[:-1]) - 1
        aligned = max(first - 1, 0) // 64 * 64
        terminal = self._payload.flags(above["terminal"], aligned, int(parents[-1]) + 1)
        bare = only & ~terminal[parents - aligned]
        for i in np.flatnonzero(bare)[:1].tolist():
            cause = f"inner node {parents[i]:,} has a single keyword below it"
            report("tree", f"level {d}: {cause}")

    def _check_store(self, start: int, report: Report) -> None:
        stop = min(start + PIECE, self._header.store_tokens)
        self._reach(self._store.check_piece(start, stop, report))

    def _check_order(self, coded: Coded, start: int, report: Report) -> None:
        assert isinstance(self._store, IndexedStore)
        self._store.check_order(coded, start, min(start + PIECE, coded.size), report)

    def _check_values(self, start: int, report: Report) -> None:
        width = self._header.value_bits
        stop = min(start + PIECE, self._header.values)
        word = start // 64 * width
        packed = self._payload.read("values", word, word + -(-(stop - start) * width // 64))
        values = bits.unpack(packed, width, stop - start)
        with self._lock:
            self._longest_value = max(self._longest_value, int(values.max()))
            self._smallest_value = min(self._smallest_value, int(values.min()))

    def _finish_values(self, report: Report) -> None:
        header = self._header
        if self._smallest_value:
            smallest = header.value_min + self._smallest_value
            report("values", f"the smallest value is {smallest}, not {header.value_min}")
        if self._longest_value.bit_length() != header.value_bits:
            needed = self._longest_value.bit_length()
            report("values", f"{needed} bits are needed where {header.value_bits} are stated")
        if header.value_min + self._longest_value >= 2**63:
            report("values", f"a value is {header.value_min + self._longest_value}, above 2^63 - 1")
        if unused_bits(self._payload, "values", 0, header.values * header.value_bits):
            report("values", "bits behind the last value are not zero")

    def _use(self, ranks: npt.NDArray[np.uint64]) -> None:
        new = _unused(self._used, ranks)
        if len(new):
            with self._lock:
                self._used[new] = True

    def _reach(self, length: int) -> None:
        with self._lock:
            self._longest = max(self._longest, length)


@jit
def _unused(used: npt.NDArray[np.bool_], ranks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Those of `ranks`, all below len(used), that are not marked yet."""
    found = np.empty(len(ranks), np.uint64)
    n = 0
    for rank in ranks:
        if not used[rank]:
            found[n] = rank
            n += 1
    return found[:n]
