"""A trie of any number of keywords that exists only as arithmetic: keyword i in about 1 us.

Keyword i of N is found by walking down from the root with a pair (n, r): n keywords pass through
the node, and this is the r-th of them. At the root that is (N, i). Each step splits the n keywords
of a node over its children, exactly, so each child gets its own pair; two keywords part at some
node or end at different ones. They are distinct by construction, and no other keyword is looked
at. What a node does depends on n, its prefix and the seed alone:

- It ends one keyword, r = 0, with probability 1 - (1 - h)^n, where h is the share of keywords
  of this length among those at least as long: n random draws would end at least one there.
- The others are points in [0, 1), one at random in each n-th part but for strata of 8 that share
  theirs: like random draws when few, like their expectation when many. The child whose
  interval holds a point gets it; n and r of the child are counts of points, and only the strata
  that the interval cuts are looked at one by one.
- Where n is more than one child could hold, its keywords go to the children in turn.

The law of the children is that of benchmark key sets with random draws:

- query: tokens by a power law of exponent 1.05, 1 to 10 of them, each for itself.
- wide, narrow: 1 to 8 tokens, the first by a power law of exponent 1.09 (wide) or 1.05 (narrow).
  A token then has 20,000 or 50 successors drawn by a power law of exponent 1, and each
  successor is a token by a hash and a power law of exponent 1.1 over the vocabulary. Drawn so,
  several successors are the same token. Here the tokens are cut into buckets [2^j - 1,
  2^(j+1) - 1), and the first 16 successors are hashed one by one (unrank.py). The rest give each
  bucket places for as many tokens as draws would hit, with the bucket's share of the weight: for
  all of a small bucket, else for those that a permutation by the previous token chooses.

Against random draws the first law is a little flatter (1.1 there), for repeated draws thin out the
common beginnings. Artifacts of 1.9 (query), 8.4 (wide) and 12.5 (narrow) million keywords take
60.8, 43.2 and 34.3 bits per keyword; random draws of as many took 61.0, 44.0 and 35.3.

All tables come from additions, multiplications and divisions alone, so that the keywords are
the same on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

KINDS = ("query", "wide", "narrow")
MAX_KEYWORDS = 2**31 - 1  # points have 32 bits each below the binary point
MAX_VOCAB_SIZE = 2**25  # a table of 8 bytes a token

_QUERY_LENGTHS = (2, 10, 20, 22, 17, 12, 8, 5, 3, 1)  # percent
_LENGTHS = (3, 14, 24, 24, 16, 10, 6, 3)
_FIRST_EXPONENT = {"query": 1.05, "wide": 1.09, "narrow": 1.05}
_SUCCESSORS = {"wide": 20_000, "narrow": 50}
_SUCCESSOR_EXPONENT = 1.1
_HEADS = 16
_GUIDE = 1 << 16


class Chain(NamedTuple):
    """The children of a token: the bounds of their shares, `heads` first, then the places.

    A place is a `slot` of a `bucket`. Of a bucket: its first token, its size, the bits of its
    permutation, its number of places and the first of them, and the bounds of its share.
    """

    heads: int
    bounds: Floats
    guide: npt.NDArray[np.int32]
    bucket: Integers
    slot: Integers
    bucket_first: Integers
    bucket_size: Integers
    bucket_bits: Integers
    places: Integers
    first_place: Integers
    bucket_bounds: Floats


class VirtualTrie(NamedTuple):
    """The tables of the walk, about 10 bytes a token of the vocabulary.

    `hazard[d]` is the share of keywords of d tokens among those of d or more, `capacity[d]` the
    keywords that a node at depth d surely has room for. `first` holds the bounds of the shares of
    tokens that follow no other: of the first ones, and without a chain (no places) of all. A guide
    maps equal parts of [0, 1] to the interval in which they begin.
    """

    depth: int
    vocab_size: int
    hazard: Floats
    capacity: Integers
    first: Floats
    first_guide: npt.NDArray[np.int32]
    chain: Chain


def virtual_trie(kind: str, vocab_size: int) -> VirtualTrie:
    """The tables for a kind and a vocabulary: 0.3 s for two million tokens."""
    lengths = np.array(_QUERY_LENGTHS if kind == "query" else _LENGTHS, np.float64)
    depth = len(lengths)
    hazard = np.zeros(depth + 1)
    hazard[1:] = lengths / np.cumsum(lengths[::-1])[::-1]
    logarithms = _logarithms(vocab_size + 1)
    first = _power_law(logarithms, _FIRST_EXPONENT[kind])
    if kind == "query":
        none = np.zeros(0, np.int64)
        fan_out = vocab_size
        no_bounds, no_guide = np.zeros(0), np.zeros(0, np.int32)
        chain = Chain(0, no_bounds, no_guide, none, none, none, none, none, none, none, no_bounds)
    else:
        chain = _chain(logarithms, min(_SUCCESSORS[kind], vocab_size))
        fan_out = len(chain.bucket)
    capacity = [1]
    for d in range(depth - 1, -1, -1):
        capacity.append(min(capacity[-1] * (fan_out if d else vocab_size), 1 << 50))
    return VirtualTrie(
        depth, vocab_size, hazard, np.array(capacity[::-1]), first, _guide(first), chain
    )


def _chain(logarithms: Floats, successors: int) -> Chain:
    """The children of a token, of so many successors."""
    vocab_size = len(logarithms) - 1
    law = _power_law(logarithms, _SUCCESSOR_EXPONENT)
    count = int(vocab_size).bit_length()
    start = 2 ** np.arange(count, dtype=np.int64) - 1
    size = np.minimum(start + 1, vocab_size - start)
    share = law[start + size] - law[start]
    bounds = np.append(law[start], 1.0)
    heads = min(_HEADS, successors // 2)
    rest = successors - heads
    # The distinct tokens among the draws from a bucket.
    hit = np.rint(size * (1.0 - _exponentials(-rest * share / size))).astype(np.int64)
    places = np.clip(hit, 1, size)
    steps = logarithms[: successors + 1] / logarithms[successors]
    weights = [np.diff(steps[: heads + 1])]
    for j in range(count):
        if places[j] == size[j]:
            weight = np.diff(law[start[j] : start[j] + size[j] + 1])
        else:  # each place stands for a run of the successors
            weight = np.diff(steps[heads + np.arange(places[j] + 1) * rest // places[j]])
        weights.append((1.0 - steps[heads]) * share[j] * weight / weight.sum())
    cumulative = np.concatenate([[0.0], np.cumsum(np.concatenate(weights))])
    cumulative /= cumulative[-1]
    first_place = np.cumsum(places) - places
    bucket = np.repeat(np.arange(count, dtype=np.int64), places)
    slot = np.arange(len(bucket), dtype=np.int64) - first_place[bucket]
    bits = np.array([max(1, int(n - 1).bit_length()) for n in size], np.int64)
    return Chain(
        heads,
        cumulative,
        _guide(cumulative),
        bucket,
        slot,
        start,
        size,
        bits,
        places,
        first_place,
        bounds,
    )


def _logarithms(n: int) -> Floats:
    """ln 1 to ln n: sums of ln((k + 1) / k) = 2 artanh(1 / (2k + 1))."""
    z = 1.0 / (2.0 * np.arange(1, n) + 1.0)
    square = z * z
    series = np.full(n - 1, 1.0 / 37)
    for k in range(35, 0, -2):
        series *= square
        series += 1.0 / k
    result = np.zeros(n)
    np.cumsum(2.0 * z * series, out=result[1:])
    return result


def _exponentials(x: Floats) -> Floats:
    """e^x for x <= 0; below -40 as at -40."""
    y = np.maximum(x, -40.0) / 16.0
    series = np.ones_like(y)
    for k in range(22, 0, -1):
        series *= y
        series /= k
        series += 1.0
    for _ in range(4):
        series *= series
    return series


def _power_law(logarithms: Floats, exponent: float) -> Floats:
    """Bounds in [0, 1] of the shares of 0 to n - 1, of the logarithms of 1 to n + 1."""
    powers = _exponentials((1.0 - exponent) * logarithms)
    result = (1.0 - powers) / (1.0 - powers[-1])
    result[-1] = 1.0
    return np.maximum.accumulate(result)


def _guide(bounds: Floats) -> npt.NDArray[np.int32]:
    parts = min(_GUIDE, 1 << (len(bounds) - 1).bit_length())
    edges = np.arange(parts + 1) / parts
    return np.minimum(np.searchsorted(bounds, edges, "right") - 1, len(bounds) - 2).astype(np.int32)
