"""From (i, N) to keyword i of N, down a virtual trie: compiled functions, about 1 us a keyword.

virtual_trie.py says how. A node has a `key`, a hash of its prefix, and a `previous`, a hash of its
last token. Points are scaled from [0, 1) to [0, 2^32 n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flashtrie.builder.virtual_trie import Chain, Floats, VirtualTrie
from flashtrie.formats.jit import jit

if TYPE_CHECKING:

    def int64(value: Any) -> int:
        """A 64-bit integer, which is what an int is in compiled code."""
else:
    int64 = np.int64

_STRATUM = 8  # items whose points share a range
_TO_UNIT = 2.0**-53


@jit
def _mix(x: np.uint64) -> np.uint64:
    """The finaliser of splitmix64 (Steele et al.): a bijection in which each bit depends on all."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@jit
def _permute(x: int, size: int, bits: int, key: np.uint64) -> int:
    """A permutation of 0 to size - 1 <= 2^bits - 1; steps that leave the range walk on."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    shift = np.uint64((bits + 1) // 2)
    factor = key | np.uint64(1)
    term = key >> np.uint64(32)
    y = np.uint64(x)
    while True:
        for _ in range(3):
            y = (y * factor + term) & mask
            y ^= y >> shift
        if int64(y) < size:
            return int64(y)


@jit
def _find(bounds: Floats, guide: npt.NDArray[np.int32], point: int, scale: float) -> int:
    """The interval that holds a point, both scaled from [0, 1) to [0, scale)."""
    parts = len(guide) - 1
    part = int64(np.float64(point) / scale * parts)
    low = int64(guide[max(part - 1, 0)])
    high = int64(guide[min(part + 2, parts)]) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if int64(bounds[middle] * scale) <= point:
            low = middle
        else:
            high = middle
    return low


@jit
def _fraction(key: np.uint64, r: int) -> int:
    """32 random bits of item r."""
    x = key + np.uint64(r) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return int64(x >> np.uint64(32))


@jit
def _point(key: np.uint64, r: int, n: int) -> int:
    """Where item r of n lies in [0, 2^32 n): at random in the range of its stratum."""
    start = r - r % _STRATUM
    return (start << 32) + min(_STRATUM, n - start) * _fraction(key, r)


@jit
def _count_in(key: np.uint64, stratum: int, low: int, high: int, r: int, n: int) -> tuple[int, int]:
    """Points of one stratum in [low, high), and those of them that come before item r."""
    count = 0
    before = 0
    first = stratum * _STRATUM
    width = min(_STRATUM, n - first)
    low -= first << 32
    high -= first << 32
    # Without branches: they would be as unpredictable as the points.
    for item in range(first, first + width):
        point = width * _fraction(key, item)
        inside = (point >= low) & (point < high)
        count += inside
        before += inside & (item < r)
    return count, before


@jit
def _count(key: np.uint64, low: int, high: int, r: int, n: int) -> tuple[int, int]:
    """Points in [low, high), and those of them that come before item r."""
    if low >= high:
        return 0, 0
    first = (low >> 32) // _STRATUM
    last = ((high - 1) >> 32) // _STRATUM
    count, before = _count_in(key, first, low, high, r, n)
    if last > first:
        whole = (first + 1) * _STRATUM
        items = last * _STRATUM - whole
        more, more_before = _count_in(key, last, low, high, r, n)
        count += items + more
        before += min(max(r - whole, 0), items) + more_before
    return count, before


@jit
def _head(chain: Chain, x: np.uint64, bucket: int, head: int) -> int:
    """The slot of a head with hash `x` that falls into `bucket`.

    A slot of its own where there is room behind the places, else any slot: one that is a place,
    or another head's, too.
    """
    if chain.bucket_size[bucket] >= chain.places[bucket] + chain.heads:
        return int64(chain.places[bucket] + head)
    return int64(int64(_mix(x) >> np.uint64(33)) % chain.bucket_size[bucket])


@jit
def _head_hash(previous: np.uint64, head: int) -> np.uint64:
    return _mix(previous + np.uint64(head + 1) * np.uint64(0xC2B2AE3D27D4EB4F))


@jit
def _unit(x: np.uint64) -> float:
    return np.float64(x >> np.uint64(11)) * _TO_UNIT


@jit
def _count_child(
    chain: Chain,
    key: np.uint64,
    previous: np.uint64,
    child: int,
    bucket: int,
    slot: int,
    r: int,
    n: int,
) -> tuple[int, int]:
    """Points of a child of a token, and those before item r: of all its intervals."""
    scale = 4294967296.0 * n
    bounds = chain.bounds
    if chain.bucket_size[bucket] >= chain.places[bucket] + chain.heads:
        low, high = int64(bounds[child] * scale), int64(bounds[child + 1] * scale)
        return _count(key, low, high, r, n)
    count = 0
    before = 0
    from_unit, to_unit = chain.bucket_bounds[bucket], chain.bucket_bounds[bucket + 1]
    for i in range(chain.heads + 1):
        if i < chain.heads:
            k = i
            x = _head_hash(previous, i)
            unit = _unit(x)
            same = from_unit <= unit and unit < to_unit and _head(chain, x, bucket, i) == slot
        else:
            k = chain.heads + chain.first_place[bucket] + slot
            same = slot < chain.places[bucket]
        if same:
            low, high = int64(bounds[k] * scale), int64(bounds[k + 1] * scale)
            more, more_before = _count(key, low, high, r, n)
            count += more
            before += more_before
    return count, before


@jit
def _power(base: float, exponent: int) -> float:
    """base^exponent, or 0 where it is below any difference between random numbers."""
    if exponent == 1:
        return base
    if (1.0 - base) * exponent > 37.0:  # e^-37 < 2^-53
        return 0.0
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@jit
def _keyword(
    trie: VirtualTrie, seed: np.uint64, r: int, n: int, tokens: npt.NDArray[np.uint32], end: int
) -> int:
    """Write keyword r of n to `tokens` from `end` on. Returns its end."""
    key = _mix(seed + np.uint64(0x632BE59BD9B4E019))
    chain = trie.chain
    previous = np.uint64(0)
    depth = 0
    while depth < trie.depth:
        if depth > 0:
            stay = _power(1.0 - trie.hazard[depth], n)
            if _unit(_mix(key ^ np.uint64(0xD6E8FEB86659FD93))) >= stay:
                if r == 0:
                    return end
                r -= 1
                n -= 1
        in_turn = n > trie.capacity[depth + 1]
        scale = 4294967296.0 * n
        if depth == 0 or len(chain.bucket) == 0:
            children = trie.vocab_size
            child = r % children
            if not in_turn:
                child = _find(trie.first, trie.first_guide, _point(key, r, n), scale)
                if n > 1:
                    low = int64(trie.first[child] * scale)
                    high = int64(trie.first[child + 1] * scale)
                    n, r = _count(key, low, high, r, n)
            token = child
        else:
            children = len(chain.bucket)
            child = r % children
            place = child
            if not in_turn:
                child = _find(chain.bounds, chain.guide, _point(key, r, n), scale)
                place = child - chain.heads
            if place >= 0:
                bucket, slot = chain.bucket[place], chain.slot[place]
            else:
                x = _head_hash(previous, child)
                bucket = 0
                while _unit(x) >= chain.bucket_bounds[bucket + 1]:
                    bucket += 1
                slot = _head(chain, x, bucket, child)
            if n > 1 and not in_turn:
                n, r = _count_child(chain, key, previous, child, bucket, slot, r, n)
            size = chain.bucket_size[bucket]
            token = slot
            if chain.places[bucket] < size:
                turn = _mix(previous ^ np.uint64(bucket + 1))
                token = _permute(slot, size, chain.bucket_bits[bucket], turn)
            token += chain.bucket_first[bucket]
        if in_turn:
            n = (n - child + children - 1) // children
            r = r // children
        tokens[end] = token
        end += 1
        depth += 1
        key = _mix(key ^ (np.uint64(token) + np.uint64(0x9E3779B97F4A7C15)))
        previous = _mix(np.uint64(token) ^ seed)
    return end


@jit
def write_rows(
    trie: VirtualTrie,
    seed: np.uint64,
    keywords: int,
    rows: int,
    first: int,
    offsets: npt.NDArray[np.int32],
    tokens: npt.NDArray[np.uint32],
) -> int:
    """Rows `first` on of `rows`, as many as `offsets` (one more) has room for. 1 us a row.

    The rows are the keywords in an order that the seed chooses, with rows - keywords copies of
    keywords, each drawn by itself, among them. `tokens` needs depth entries a row. Returns how many
    were written.
    """
    bits = 1
    while rows > 1 << bits:
        bits += 1
    key = _mix(seed + np.uint64(1))
    end = 0
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        keyword = _permute(first + i, rows, bits, key)
        if keyword >= keywords:
            keyword = int64(_mix(seed ^ _mix(np.uint64(keyword))) >> np.uint64(1)) % keywords
        end = _keyword(trie, seed, keyword, keywords, tokens, end)
        offsets[i + 1] = end
    return end
