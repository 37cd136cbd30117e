"""Lookup, key ids, iteration and counts of built tries, against the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashtrie import FlashTrieError, Trie
from tests import strategies
from tests.oracle import Keyword, Oracle
from tests.strategies import LOW_BITS, TAILS

build_options = st.fixed_dictionaries(
    {
        "tails": st.sampled_from(TAILS),
        "low_bits": st.sampled_from(LOW_BITS),
        "shards": st.integers(1, 3),
        "row_group_size": st.sampled_from([None, 1, 7]),
        "threads": st.sampled_from([1, 2]),
    }
)


def flatten(keywords: Sequence[Keyword]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    offsets = np.cumsum([0, *(len(k) for k in keywords)]).astype(np.int64)
    return np.array([token for k in keywords for token in k], np.int64), offsets


def absent_keywords(oracle: Oracle) -> list[Keyword]:
    """Neighbours of the keywords: cut, extended, one token changed, and tokens that cannot be."""
    foreign = [-1, oracle.vocab_size, 2**32 - 1, 2**32, *(2**32 + t for t in oracle.alphabet[:2])]
    near = [*oracle.alphabet[:3], *(t + 1 for t in oracle.alphabet[:3])]
    neighbours = [(), *((t,) for t in foreign)]
    for keyword in oracle.keywords[:200]:
        neighbours += [keyword[:-1], keyword[1:], keyword + keyword[-1:], keyword[::-1]]
        neighbours += [keyword + (t,) for t in (*near, *foreign)]
        neighbours += [keyword[:-1] + (t,) for t in (*near, *foreign)]
        neighbours += [(t,) + keyword[1:] for t in (*near, *foreign)]
    return neighbours


def assert_holds(trie: Trie, oracle: Oracle) -> None:
    """Everything but search agrees with the oracle."""
    assert len(trie) == len(oracle)
    ids = list(range(len(oracle)))

    everything = oracle.keywords + absent_keywords(oracle)
    expected = [oracle.lookup(k) for k in everything]
    found = trie.lookup(everything)
    assert found.dtype == np.int64
    assert found.tolist() == expected
    values, offsets = flatten(everything)
    for threads in (1, 2, 3):
        assert trie.lookup_flat(values, offsets, threads=threads).tolist() == expected
    in_uint32 = flatten(oracle.keywords)
    flat = trie.lookup_flat(in_uint32[0].astype(np.uint32), in_uint32[1])
    assert flat.tolist() == ids

    some = ids if len(ids) < 100 else ids[:: len(ids) // 50]
    for i in some:
        keyword = trie.keyword(i)
        assert keyword.dtype == np.uint32
        assert tuple(keyword.tolist()) == oracle.keywords[i]
        assert trie.value(i) == oracle.value(i)

    for start, stop in [(0, len(ids)), (len(ids) // 3, len(ids) // 2 + 1), (0, 0)]:
        tokens, offsets = trie.keywords(start, stop)
        assert tokens.dtype == np.uint32
        assert offsets.dtype == np.int64
        expected_tokens, expected_offsets = flatten(oracle.keywords[start:stop])
        assert tokens.tolist() == expected_tokens.tolist()
        assert offsets.tolist() == expected_offsets.tolist()

    kept = trie.values(np.array(ids, np.int64))
    if oracle.value(0) is None:
        assert kept is None
    else:
        assert kept is not None
        assert kept.tolist() == [oracle.value(i) for i in ids]

    header = trie.artifact.header
    counts = oracle.level_counts()
    assert header.level_table[:, :5].tolist() == [list(level) for level in counts]
    assert header.nodes == sum(nodes for nodes, *_ in counts)
    assert header.keywords == len(oracle)
    assert trie.artifact.sections["alphabet"].tolist() == oracle.alphabet
    assert header.vocab_size == oracle.vocab_size
    assert header.max_length == max(len(k) for k in oracle.keywords)


@given(rows=strategies.key_rows(), options=build_options)
def test_small_key_sets(build_trie, rows, options):
    with build_trie(rows.rows, rows.values, **options) as trie:
        oracle = rows.oracle()
        assert_holds(trie, oracle)
        assert [tuple(k.tolist()) for k in trie] == oracle.keywords


@given(rows=strategies.large_key_rows(), options=build_options)
def test_large_key_sets(build_trie, rows, options):
    options |= {"row_group_size": None}  # Row groups of one row are for small key sets.
    with build_trie(rows.rows, rows.values, **options) as trie:
        assert_holds(trie, rows.oracle())


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("low_bits", LOW_BITS)
def test_every_layout(build_trie, tails, low_bits):
    rng = np.random.default_rng(5)
    tokens = np.minimum(rng.zipf(1.3, (4000, 6)), 2**31) * 2 - 2
    lengths = rng.integers(1, 7, 4000)
    rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]
    rows += [(7, *row) for row in rows[:500]] + rows[:100]
    values = list(range(len(rows), 0, -1))
    with build_trie(rows, values, tails=tails, low_bits=low_bits) as trie:
        assert_holds(trie, strategies.Rows(rows, values).oracle())


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("length", [4095, 4096])
def test_one_long_chain(build_trie, tails, length):
    chain = (0, 3, 1) * (length // 3) + (5,) * (length % 3)
    rows = [chain, chain[:-1], chain[: length // 2], chain[: length // 2] + chain[:30]]
    with build_trie(rows, tails=tails) as trie:
        assert_holds(trie, strategies.Rows(rows, None).oracle())


@pytest.mark.parametrize("tails", TAILS)
@pytest.mark.parametrize("length", [1, 2, 3, 4096])
def test_one_keyword(build_trie, tails, length):
    rows = [tuple(range(length))]
    with build_trie(rows, [-5], tails=tails) as trie:
        assert_holds(trie, strategies.Rows(rows, [-5]).oracle())


@pytest.mark.parametrize("tails", TAILS)
def test_two_tokens_that_share_heavily(build_trie, tails):
    """All strings over two tokens up to length 9, and long tails behind some of them."""
    rows = [tuple(int(b) for b in f"{n:b}"[1:]) for n in range(2, 1024)]
    rows += [(*row, *[0, 1, 1] * 5) for row in rows[-40:]]
    rows += [(*row, *[1, 1] * 4) for row in rows[-80:-40]]
    with build_trie(rows, tails=tails, low_bits=4) as trie:
        assert_holds(trie, strategies.Rows(rows, None).oracle())


@pytest.mark.parametrize("tails", TAILS)
def test_a_wide_root_and_a_wide_node(build_trie, tails):
    rows = [(t,) for t in range(0, 140_000, 7)] + [(3, t, t) for t in range(70_000)]
    with build_trie(rows, tails=tails) as trie:
        assert_holds(trie, strategies.Rows(rows, None).oracle())


def test_a_vocabulary_larger_than_the_tokens(build_trie):
    rows = [(1, 2), (1, 9)]
    with build_trie(rows, vocab_size=2**32 - 1) as trie:
        assert_holds(trie, strategies.Rows(rows, None).oracle(vocab_size=2**32 - 1))


def test_nothing_to_look_up(build_trie):
    with build_trie([(1, 2)]) as trie:
        assert trie.lookup([]).tolist() == []
        assert trie.lookup([[]]).tolist() == [-1]
        assert trie.lookup_flat(np.zeros(0, np.uint32), np.zeros(1, np.int64)).tolist() == []


@pytest.mark.parametrize("key_id", [-1, 2, 2**40])
def test_key_ids_outside_the_set_are_refused(build_trie, key_id):
    with build_trie([(1, 2), (3,)], [4, 5]) as trie:
        for call in (trie.keyword, trie.value, lambda i: trie.values(np.array([i], np.int64))):
            with pytest.raises((IndexError, FlashTrieError)):
                call(key_id)
