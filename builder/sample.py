"""A sample of the input, whose quantiles are the borders between ranges."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from flashtrie.builder.alphabet import Alphabet
from flashtrie.builder.batches import Batch
from flashtrie.builder.scatter import Splitters, encode_rows

# For each range: the largest of thousands is then within some 40% of the average.
_RANGE_ROWS = 128
_TOKENS = 1 << 22
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_Drawn = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]


class Sample:
    """One row of every `stride`, at a place that differs from stride to stride.

    A fixed place would see one kind of rows alone where kinds take turns. Up to 8 million tokens,
    32 MB, and some 100 bytes a row while borders are found.
    """

    def __init__(self, rows: int, tokens: int, ranges: int) -> None:
        """Of so many rows, for so many ranges; strides grow where there are more tokens."""
        self._stride = max(1, rows // (_RANGE_ROWS * ranges), tokens // _TOKENS)
        # Tokens and lengths of the rows of each batch.
        self._drawn: list[_Drawn] = []
        self._tokens = 0
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Draw from a batch. Called from any thread."""
        stride = self._stride
        firsts = np.arange(0, len(batch), stride)
        mixed = (firsts + batch.first_row).astype(np.uint64) * _GOLDEN >> np.uint64(33)
        rows = firsts + (mixed % np.uint64(stride)).astype(np.int64)
        drawn = _rows(batch.tokens, batch.offsets, rows[rows < len(batch)])
        with self._lock:
            if stride < self._stride:  # the others were thinned meanwhile
                drawn = _every(self._stride // stride, drawn, 0)
            if len(drawn[1]):
                self._drawn.append(drawn)
            self._tokens += len(drawn[0])
            if self._tokens > 2 * _TOKENS:
                self._thin()

    def _thin(self) -> None:
        """Keep every second row."""
        first = 0
        for i, drawn in enumerate(self._drawn):
            self._drawn[i] = _every(2, drawn, first)
            first = (first + len(drawn[1])) % 2
        self._tokens = sum(len(tokens) for tokens, _ in self._drawn)
        self._stride *= 2

    def splitters(self, alphabet: Alphabet, ranges: int) -> Splitters:
        """Borders between at most `ranges` ranges of about equal size. Empties the sample."""
        tokens = np.concatenate([np.empty(0, np.uint32), *(drawn for drawn, _ in self._drawn)])
        lengths = np.concatenate([np.zeros(1, np.int64), *(drawn for _, drawn in self._drawn)])
        self._drawn.clear()
        entries = alphabet.entries(tokens)
        return Splitters.even(encode_rows(entries, lengths.cumsum(), alphabet.code_of), ranges)


def _every(stride: int, drawn: _Drawn, first: int) -> _Drawn:
    tokens, lengths = drawn
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    return _rows(tokens, offsets, np.arange(first, len(lengths), stride))


def _rows(
    tokens: npt.NDArray[np.uint32], offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> _Drawn:
    """The tokens and lengths of some rows."""
    begins = offsets[rows]
    lengths = offsets[rows + 1] - begins
    places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    return tokens[places], lengths
