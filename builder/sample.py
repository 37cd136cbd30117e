"""A sample of the input, whose quantiles are the borders between ranges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashtrie.builder.alphabet import Alphabet
from flashtrie.builder.batches import Batch
from flashtrie.builder.scatter import Splitters, encode_rows

# For each range: the largest of thousands is then within some 40% of the average.
_RANGE_ROWS = 128
_TOKENS = 1 << 22
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Sample:
    """One row of every `stride`, at a place that differs from stride to stride.

    A fixed place would see one kind of rows alone where kinds take turns. Up to 4 million tokens,
    16 MB, and some 100 bytes a row while borders are found.
    """

    def __init__(self, rows: int, tokens: int, ranges: int) -> None:
        """Of about so many rows and tokens, for so many ranges."""
        self._stride = max(1, rows // (_RANGE_ROWS * ranges), tokens // _TOKENS)
        # Tokens and lengths of the rows of each batch.
        self._drawn: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]] = []

    def add(self, batch: Batch) -> None:
        """Draw from a batch. Called from any thread."""
        firsts = np.arange(0, len(batch), self._stride)
        mixed = (firsts + batch.first_row).astype(np.uint64) * _GOLDEN >> np.uint64(33)
        rows = firsts + (mixed % np.uint64(self._stride)).astype(np.int64)
        rows = rows[rows < len(batch)]
        begins = batch.offsets[rows]
        lengths = batch.offsets[rows + 1] - begins
        places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        places += np.arange(len(places))
        self._drawn.append((batch.tokens[places], lengths))

    def splitters(self, alphabet: Alphabet, ranges: int) -> Splitters:
        """Borders between at most `ranges` ranges of about equal size. Empties the sample."""
        tokens = np.concatenate([drawn for drawn, _ in self._drawn])
        lengths = np.concatenate([np.zeros(1, np.int64), *(drawn for _, drawn in self._drawn)])
        self._drawn.clear()
        entries = alphabet.entries(tokens)
        return Splitters.even(encode_rows(entries, lengths.cumsum(), alphabet.code_of), ranges)
