"""Ranges that are too large for their share of the memory, and how ranges are divided."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashtrie.builder import codes
from flashtrie.builder.alphabet import Alphabet
from flashtrie.builder.batches import Batch
from flashtrie.builder.plan import plan_build
from flashtrie.builder.ranges import Records, SpilledRanges
from flashtrie.builder.sample import Sample
from flashtrie.builder.scatter import Splitters, scatter
from flashtrie.builder.sort import sort_parts, sort_range
from flashtrie.builder.spill import Column, PieceFiles, Shelf, Spill
from flashtrie.builder.tails import _group_range
from flashtrie.formats.errors import UsageError
from tests.builder.test_codes import ROWS, encode


def spill(folder, range_bytes=1 << 20, buffer_bytes=0):
    return Spill(folder, range_bytes, buffer_bytes, 0)


@st.composite
def repeated_rows(draw):
    """Rows of which a few come again and again."""
    rows = draw(ROWS)
    return rows + draw(st.lists(st.sampled_from(rows[:3]), max_size=60))


def records(rows, values):
    return Records(encode(rows).data, len(rows), np.array(values, np.int64))


@given(rows=repeated_rows(), cuts=st.lists(st.integers(0, 120), max_size=6), data=st.data())
def test_a_range_in_parts_is_the_range(rows, cuts, data):
    values = data.draw(st.lists(st.integers(-2, 2), min_size=len(rows), max_size=len(rows)))
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    spans = [slice(*span) for span in zip(bounds, bounds[1:], strict=False)]
    whole = sort_range(*records(rows, values))
    parts = sort_parts([records(rows[span], values[span]) for span in spans])
    assert len(parts) == len(whole)
    for i in range(len(whole)):
        assert parts.ranks(i).tolist() == whole.ranks(i).tolist()
    assert parts.values is not None and whole.values is not None
    assert parts.values.tolist() == whole.values.tolist()
    assert parts.weights is not None and whole.weights is not None
    assert parts.weights.tolist() == whole.weights.tolist()
    assert (parts.rows, parts.conflicts) == (whole.rows, whole.conflicts)
    assert (parts.conflict is None) == (whole.conflict is None)
    bare = sort_parts([(*records(rows[span], [])[:2], None) for span in spans])
    assert [bare.ranks(i).tolist() for i in range(len(bare))] == [
        whole.ranks(i).tolist() for i in range(len(whole))
    ]


@given(rows=repeated_rows(), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_tails_in_parts_are_grouped_alike(rows, cuts):
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    spans = [slice(*span) for span in zip(bounds, bounds[1:], strict=False)]
    ordinals = list(range(100, 100 + len(rows)))
    found = [
        _group_range([records(rows[span], ordinals[span]) for span in some], Shelf(None, "tails"))
        for some in ([slice(None)], spans)
    ]
    states = []
    for groups in found:
        group_of: dict[int, int] = {}
        for members in groups.members:
            group_of |= dict(zip(*(array.tolist() for array in members.get()), strict=True))
        arrays = (groups.lengths, groups.uses, groups.chained)
        columns = [array.get(0, groups.size).tolist() for array in arrays]
        histogram = groups.histogram.tolist()
        states.append((group_of, columns, histogram, groups.head, groups.last))
    assert states[0] == states[1]


@pytest.mark.parametrize("with_values", [False, True])
def test_a_hot_keyword_comes_in_parts(tmp_path, with_values):
    """Its range is as large as all rows, and no splitter divides it."""
    hot, others = (7, 300), [(7, 300, i) for i in range(50)]
    rows = [hot] * 5000 + others + [hot] * 5000
    values = list(range(len(rows)))
    splitters = Splitters([b"\x01", b"\x70"])
    store = SpilledRanges(3, spill(tmp_path, range_bytes=100_000), "keywords")
    for span in (slice(0, 4000), slice(4000, 4001), slice(4001, None)):
        block_values = np.array(values[span]) if with_values else None
        store.add(scatter(encode(rows[span]), block_values, splitters))
    (r,) = np.flatnonzero(store.rows).tolist()
    sizes, seen = [], []
    for data, count, part_values in store.take(r):
        n, used = codes.whole_records(data, len(rows))
        assert (n, used) == (count, len(data))
        assert len(part_values) == (count if with_values else 0)
        sizes.append(count)
        seen += part_values.tolist()
    assert sum(sizes) == len(rows)
    assert len(sizes) > 10
    assert max(sizes) * 64 + max(sizes) * 5 <= 100_000
    assert seen == (values if with_values else [])
    assert list(tmp_path.iterdir()) == []


def column(pieces):
    """Byte strings, one for each range, with others between them that are of none."""
    sizes = np.array([len(piece) for piece in pieces])
    octets = np.frombuffer(b"".join(piece + b"??" for piece in pieces), np.uint8)
    return Column(octets, np.cumsum(sizes + 2) - sizes - 2, sizes)


@given(
    # Some have no room with what waits, some have none at all.
    chunks=st.lists(st.tuples(*[st.binary(max_size=60)] * 3), max_size=8),
    second=st.booleans(),
    start=st.integers(0, 60),
    size=st.integers(-1, 60),
)
def test_pieces_are_read_from_their_files_and_from_what_waits(
    tmp_path_factory, chunks, second, start, size
):
    folder = tmp_path_factory.mktemp("pieces")
    pieces = PieceFiles(spill(folder), "x", 3, 50)
    for chunk in chunks:
        ends = [column([piece[-5:] for piece in chunk])] if second else []
        pieces.append(column(chunk), *ends)
    for r in range(3):
        whole = b"".join(chunk[r] for chunk in chunks)
        assert pieces.size(r, 0) == len(whole)
        expected = whole[start:] if size < 0 else whole[start : start + size]
        assert pieces.read(r, 0, np.uint8, start, size).tobytes() == expected
        expected = b"".join(chunk[r][-5:] for chunk in chunks) if second else b""
        assert pieces.read(r, 1, np.uint8).tobytes() == expected
    for r in range(3):
        pieces.remove(r)
        assert pieces.size(r, 0) == pieces.size(r, 1) == 0
    assert list(folder.iterdir()) == []


def test_threads_append_both_columns_in_one_order(tmp_path):
    """What threads append at the same time stands in any order, but in the same in both."""
    pieces = PieceFiles(spill(tmp_path), "x", 2, 64)

    def append(thread):
        for i in range(200):
            rows = 1 + (thread + i) % 40
            number = np.full(2 * rows, 200 * thread + i, np.int64)
            octets = number.astype("<u2").view(np.uint8)
            sizes = np.full(2, 2 * rows)
            first = Column(octets, np.array([0, 2 * rows]), sizes)
            pieces.append(first, Column(number.view(np.uint8), 4 * first.starts, 4 * sizes))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    for r in range(2):
        numbers = pieces.read(r, 1, np.int64)
        assert pieces.read(r, 0, np.uint16).tolist() == numbers.tolist()
        assert len(numbers) == sum(1 + (t + i) % 40 for t in range(4) for i in range(200))


@given(ROWS, st.integers(0, 100), st.integers(0, 400))
def test_whole_records_at_a_cut(rows, most, end):
    encoded = encode(rows)
    n, used = codes.whole_records(encoded.data[:end], most)
    whole = sum(1 for stop in encoded.starts[1:].tolist() if stop <= end)
    assert n == min(whole, most)
    assert used == encoded.starts[n]


def test_whole_records_of_every_length():
    """Headers of one byte and of three, and each cut within them."""
    rows = [(5,) * length for length in (1, 50, 51, 254, 255, 4096)]
    encoded = encode(rows)
    starts = encoded.starts.tolist()
    for end in {start + shift for start in starts for shift in (-1, 0, 1, 2, 3)}:
        if 0 <= end <= starts[-1]:
            n, used = codes.whole_records(encoded.data[:end], 100)
            assert (n, used) == (sum(start <= end for start in starts[1:]), starts[n])


def batch(rows, first_row=0):
    lengths = [len(row) for row in rows]
    tokens = np.array([token for row in rows for token in row], np.uint32)
    return Batch(tokens, np.cumsum([0, *lengths]), None, 0, 0, "file", first_row, -1)


@pytest.mark.parametrize("kinds", [2, 64, 100, 128, 1000])
def test_kinds_of_rows_that_take_turns_are_all_sampled(kinds):
    """Every `kinds`-th row begins with the same token, and so would a sample at a fixed stride."""
    rows = [(i % kinds, i) for i in range(32_000)]
    ranges = 5
    sample = Sample(len(rows), 2 * len(rows), ranges)
    for first in range(0, len(rows), 3200):
        sample.add(batch(rows[first : first + 3200], first))
    ids = np.arange(32_000, dtype=np.uint32)
    alphabet = Alphabet.from_counts(ids, np.ones(len(ids), np.int64))
    splitters = sample.splitters(alphabet, ranges)
    whole = batch(rows)
    sizes = scatter(encode(rows), None, splitters).rows
    assert len(whole) == sizes.sum()
    assert sizes.max() < 1.5 * len(rows) / ranges


def test_a_sample_of_long_keywords_stays_small(monkeypatch):
    monkeypatch.setattr("flashtrie.builder.sample._TOKENS", 1000)
    sample = Sample(1000, 100_000, 4096)
    sample.add(batch([tuple(range(100))] * 1000))
    assert sum(len(tokens) for tokens, _ in sample._drawn) <= 1100


def test_least_memory_is_enough_and_less_is_not():
    for rows, tokens, threads in ((10, 30, 1), (10**6, 5 * 10**6, 2), (10**9, 4 * 10**9, 16)):
        with pytest.raises(UsageError) as caught:
            plan_build(rows, tokens, True, threads, 1 << 20, 240 << 20)
        mib = int(caught.value.hint.split()[3].replace(",", ""))
        enough = plan_build(rows, tokens, True, threads, mib << 20, 240 << 20)
        assert enough.peak_memory <= mib << 20
        with pytest.raises(UsageError):
            plan_build(rows, tokens, True, threads, (mib - 1) << 20, 240 << 20)
