"""Coded arrays as verify reads them, against the reference in bits.py."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flashtrie.formats import bits, payload


@given(
    st.integers(0, 16),
    st.integers(0, 64),
    st.integers(0, 63),
    st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1)), min_size=1),
)
def test_a_coded_piece_is_decoded(low_bits, high_bits, skipped, elements):
    """`skipped` high parts are of elements before; what is behind the parts does not matter."""
    lows = np.array([low % 2**low_bits for low, _ in elements], np.uint64)
    flagged = np.array([high % 3 > 0 for _, high in elements])
    flagged &= bool(high_bits)
    parts = [high % 2**high_bits for (_, high), flag in zip(elements, flagged, strict=True) if flag]
    highs = np.array([1] * skipped + parts, np.uint64) if high_bits else np.empty(0, np.uint64)
    low = payload._padded(bits.pack(lows, low_bits), len(lows) * low_bits)
    high = payload._padded(bits.pack(highs, high_bits), len(highs) * high_bits)
    flags = payload._padded(bits.pack_bits(flagged), len(lows))
    assert payload._ones(flags, len(lows)) == len(parts)
    values, found = np.empty(len(lows), np.uint64), np.empty(len(parts), np.uint64)
    payload._decode(low, low_bits, flags, high, high_bits, skipped, values, found)
    assert found.tolist() == parts
    remaining = iter(parts)
    for value, low_part, flag in zip(values.tolist(), lows.tolist(), flagged, strict=True):
        assert value == (low_part | next(remaining) << low_bits if flag else low_part) % 2**64
