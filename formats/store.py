"""Verify, the tail store: where its tails end, how they are used, and in which order they stand.

Docs: docs/format.md, The tail store. That no tail of an indexed store is the end of another is
proved among neighbours of equal use only; all else would need a sort of the store.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from flashtrie.formats.payload import Coded, Payload, store_end
from flashtrie.formats.schema import BLOCK_BITS, PARAMETER
from flashtrie.formats.structure import Report

Positions = npt.NDArray[np.int64]


class TailStore:
    """The tails that end in a piece of the store, whatever its kind."""

    def __init__(self, payload: Payload) -> None:
        """Reads nothing yet."""
        self._payload = payload
        self._header = payload.artifact.header
        self._bitmap = store_end(payload.artifact)

    def check_piece(self, start: int, stop: int, report: Report) -> int:
        """Tails have two tokens and more, and make no keyword too long; the longest keyword's.

        0 where the kind is indexed: then the leaves know.
        """
        most = self._header.max_length - 1
        _, ends, lengths = self.tails(start, stop)
        here = ends >= start
        if not here.any():
            if stop - start > most:
                report("store", f"no tail ends in positions {start:,} to {stop - 1:,}")
            return 0
        ends, lengths = ends[here], lengths[here]
        for i in np.flatnonzero((lengths < 2) | (lengths > most))[:1].tolist():
            cause = f"has {lengths[i]:,} tokens, 2 to {most:,} are right"
            report("store", f"the tail that ends at position {ends[i]:,} {cause}")
            return 0
        if self._header.tails == "indexed":
            return 0
        bounds = self._payload.artifact.parameters[:, PARAMETER["first_long_tail"]]
        numbers = self._payload.rank(self._bitmap, start) + np.arange(len(ends))
        reached = np.searchsorted(bounds, numbers, side="right") + lengths
        for i in np.flatnonzero(reached > self._header.max_length)[:1].tolist():
            cause = f"ends a keyword of {reached[i]:,} tokens; max_length is smaller"
            report("tails", f"the tail that ends at store position {ends[i]:,} {cause}")
        return int(reached.max())

    def tails(self, start: int, stop: int) -> tuple[int, Positions, Positions]:
        """First position read, then end and length of the tails that end from there to `stop`.

        It reads so far back that of all that end from `start` (a multiple of 512) on, and of the
        one before these, the lengths are right, or above max_length where they are wrong.
        """
        back = BLOCK_BITS * -(-2 * self._header.max_length // BLOCK_BITS)
        first = max(start - back, 0)
        ends = first + np.flatnonzero(self._payload.flags(self._bitmap, first, stop))
        return first, ends, np.diff(ends, prepend=first - 1)


class IndexedStore(TailStore):
    """An indexed store: its end bits in memory, and how many leaves point into each tail.

    16 bytes per 64 tokens and 9 bytes per tail.
    """

    def __init__(self, payload: Payload) -> None:
        """Reads the end bits."""
        super().__init__(payload)
        self._words = payload.words(self._bitmap, 0, self._bitmap.size)
        counts = np.bitwise_count(self._words)
        self._before = np.cumsum(counts, dtype=np.int64) - counts
        # The ones were counted before, but the file may have changed since.
        tails = int(counts.sum())
        self._uses = np.zeros(tails, np.int64)
        self._whole = np.zeros(tails, np.bool_)
        self._lock = threading.Lock()

    def use(self, level: int, indices: Positions, first: int, report: Report) -> int:
        """Count leaves of a level that point to `indices`; the length of the longest keyword.

        `first` is the number of the first of them among the level's long tails.
        """
        most = self._header.max_length - level
        ends = self._ends(indices, most)
        lengths = ends - indices + 1
        for i in np.flatnonzero((lengths < 2) | (lengths > most))[:1].tolist():
            cause = f"starts at store position {indices[i]:,}, where no tail of 2 to {most:,} is"
            report("tails", f"level {level}: long tail {first + i:,} {cause}")
            return 0
        numbers = self._rank(indices)
        whole = (indices == 0) | (self._bit(np.maximum(indices - 1, 0)) == 1)
        with self._lock:
            np.add.at(self._uses, numbers, 1)
            self._whole[numbers[whole]] = True
        return level + int(lengths.max())

    def check_order(self, store: Coded, start: int, stop: int, report: Report) -> None:
        """The tails that end in a piece stand by falling use, ties by reversed rank sequence.

        Once every leaf is counted.
        """
        for number in np.flatnonzero(~self._whole[self._between(start, stop)])[:1].tolist():
            number += self._between(start, stop).start
            report("store", f"no leaf has tail {number:,} as its own")
        first, ends, lengths = self.tails(start, stop)
        second = np.flatnonzero(ends >= start)
        second = second[second > 0]
        if not len(second):
            return
        numbers = self._rank(ends[second])
        change = self._uses[numbers] - self._uses[numbers - 1]
        for i in np.flatnonzero(change > 0)[:1].tolist():
            report("store", f"tail {numbers[i]:,} has more leaves than the one before it")
            return
        ties = second[change == 0]
        tokens, _ = self._payload.values(store, first, stop)
        back = 0
        while len(ties):
            ended = (lengths[ties - 1] <= back) | (lengths[ties] <= back)
            before = tokens[ends[ties - 1] - first - np.where(ended, 0, back)]
            after = tokens[ends[ties] - first - np.where(ended, 0, back)]
            for i in np.flatnonzero(ended | (before > after))[:1].tolist():
                number = int(self._rank(ends[ties[i : i + 1]])[0])
                report("store", f"tail {number:,} does not follow the one before it")
                return
            ties = ties[before == after]
            back += 1

    def _between(self, start: int, stop: int) -> slice:
        """The numbers of the tails that end from `start` to `stop`."""
        bounds = np.array([start, stop - 1], np.int64)
        first, last = self._rank(bounds).tolist()
        return slice(first, last + int(self._bit(bounds[1:])[0]))

    def _bit(self, positions: Positions) -> npt.NDArray[np.uint64]:
        shift = (positions & 63).astype(np.uint64)
        bit: npt.NDArray[np.uint64] = self._words[positions >> 6] >> shift & np.uint64(1)
        return bit

    def _rank(self, positions: Positions) -> Positions:
        """Tails that end before each position, which is the number of the tail it is in."""
        word = positions >> 6
        below = (np.uint64(1) << (positions & 63).astype(np.uint64)) - np.uint64(1)
        numbers: Positions = self._before[word] + np.bitwise_count(self._words[word] & below)
        return numbers

    def _ends(self, positions: Positions, most: int) -> Positions:
        """The end of the tail at each position, if within `most` tokens; else far behind it."""
        word = positions >> 6
        rest = self._words[word] >> (positions & 63).astype(np.uint64)
        ends = positions + _trailing_zeros(rest)
        missing = np.flatnonzero(rest == 0)
        for step in range(1, most // 64 + 2):
            if not len(missing):
                return ends
            word = (positions[missing] >> 6) + step
            rest = self._words[np.minimum(word, len(self._words) - 1)]
            ends[missing] = word * 64 + _trailing_zeros(rest)
            missing = missing[rest == 0]
        ends[missing] = positions[missing] + most
        return ends


def _trailing_zeros(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Zeros below the lowest one; 64 where there is none."""
    return np.bitwise_count((words & (~words + np.uint64(1))) - np.uint64(1)).astype(np.int64)
