"""Selection within one row of float32 logits: two histograms over its high bits, then a sort.

A value's key is its bits, turned so that keys order as the values do (and -0.0 as 0.0). One
pass counts the keys' high halves, which names the bin of the boundary; that bin alone is
sorted. Time O(V) plus the sort of one bin; space 1 MiB of bins for each thread. A short row is
sorted as a whole, which takes less than clearing the bins.

What a selection keeps is given by a key and a range of indices: all above the key, and of those
at the key the ones within the range. The kernels take each row as float32 and as its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.sampling_math import exp, exponential, log
from flashtrie.formats.jit import Int, jit

BINS = 1 << 16
SHORT = 4096
NEGATIVE_INFINITY = 0x007FFFFF  # the key of -inf; NaN gets it too
POSITIVE_INFINITY = 0xFF800000
LAST = 1 << 62  # an index above any

# Columns of the table of cuts.
KEY, FIRST, FINAL, COUNT, TOP, NAN = 0, 1, 2, 3, 4, 5
COLUMNS = 6


@inner
def key_of(bits: Int) -> Int:
    """Key of a float32 from its bits: int64, 0 to 2^32 - 1, rising with the value."""
    b = np.int64(bits)
    magnitude = b & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return NEGATIVE_INFINITY
    if magnitude == 0:
        return 0x80000000
    return (0x80000000 | b) if b < 0x80000000 else 0xFFFFFFFF - b


@inner
def _scaled(value: float, top: float, temperature: float) -> float:
    """(value - top) / temperature, and 0 where they are equal, also at infinity."""
    if value == top:
        return 0.0
    return (np.float64(value) - np.float64(top)) / temperature


@inner
def _sorted_bin(bits: Any, high: Int, floor: Int, rising: bool) -> Any:
    """Keys and indices with this high half, in one number each: key falling, then index."""
    n = 0
    for i in range(len(bits)):
        key = key_of(bits[i])
        n += key >> 16 == high and key >= floor
    found = np.empty(n, np.int64)
    n = 0
    for i in range(len(bits)):
        key = key_of(bits[i])
        if key >> 16 == high and key >= floor:
            # The low half of the key and 46 bits of index: below 2^62.
            place = i if rising else (1 << 46) - 1 - i
            found[n] = ((0xFFFF - (key & 0xFFFF)) << 46) | place
            n += 1
    found.sort()
    return found


@jit
def cut_row(
    x: Any,
    bits: Any,
    k: Int,
    p: float,
    temperature: float,
    by_sort: bool,
    counts: Any,
    masses: Any,
    cut: Any,
) -> float:
    """Fill `cut` (int64 [6]: key, first and final index, count, top key, NaN) of one row.

    Returns log_mass. `counts` int64 and `masses` float64 [65536] are scratch. k <= 0 and p >= 1
    are off.
    """
    size = len(x)
    top_key = NEGATIVE_INFINITY
    best = 0
    nan = 0
    present = 0
    infinite = 0
    for i in range(size):
        key = key_of(bits[i])
        nan |= x[i] != x[i]
        present += key > NEGATIVE_INFINITY
        infinite += key == POSITIVE_INFINITY
        if key > top_key:
            top_key = key
            best = i
    cut[KEY] = NEGATIVE_INFINITY
    cut[FIRST] = LAST
    cut[FINAL] = -1
    cut[COUNT] = 0
    cut[TOP] = top_key
    cut[NAN] = nan
    if present == 0:
        return -np.inf
    floor = NEGATIVE_INFINITY + 1
    if infinite > 0:
        floor = POSITIVE_INFINITY
        present = infinite
    top = x[best]
    if temperature == 0.0 or (p <= 0.0 and not by_sort):
        _keep_one(cut, top_key, best)
        return 0.0
    cut[KEY] = floor
    cut[FIRST] = 0
    cut[FINAL] = LAST
    cut[COUNT] = present
    if size <= SHORT and p > 0.0:
        return _cut_sorted(x, bits, floor, present, top, k, p, temperature, by_sort, cut)
    if 0 < k < size and k < present:
        counts[:] = 0
        for i in range(size):
            key = key_of(bits[i])
            if key >= floor:
                counts[key >> 16] += 1
        above = 0
        high = BINS - 1
        while above + counts[high] < k:
            above += counts[high]
            high -= 1
        ordered = _sorted_bin(bits, high, floor, True)
        last = ordered[k - above - 1]
        low = last >> 46
        cut[KEY] = (high << 16) | (0xFFFF - low)
        cut[COUNT] = k
        if by_sort:
            n = k - above
            while n < len(ordered) and ordered[n] >> 46 == low:
                n += 1
            cut[COUNT] = above + n
        else:
            cut[FINAL] = last & ((1 << 46) - 1)
    if p <= 0.0:
        for i in range(best, size):
            if key_of(bits[i]) == top_key and i <= cut[FINAL]:
                best = i
        _keep_one(cut, top_key, best)
        return 0.0
    return _cut_mass(x, bits, top, p, temperature, by_sort, masses, cut)


@inner
def _keep_one(cut: Any, key: Int, index: Int) -> None:
    cut[KEY] = key
    cut[FIRST] = index
    cut[FINAL] = index
    cut[COUNT] = 1


@inner
def _cut_sorted(
    x: Any,
    bits: Any,
    floor: int,
    present: int,
    top: float,
    k: int,
    p: float,
    temperature: float,
    by_sort: bool,
    cut: Any,
) -> float:
    """Cut a short row whose keys from `floor` up are `present`; returns log_mass."""
    ordered = np.empty(present, np.int64)
    n = 0
    for i in range(len(bits)):
        key = key_of(bits[i])
        if key >= floor:
            ordered[n] = ((0xFFFFFFFF - key) << 12) | i
            n += 1
    ordered.sort()
    if 0 < k < len(x) and k < n:
        n = k
        while by_sort and n < present and ordered[n] >> 12 == ordered[n - 1] >> 12:
            n += 1
    if by_sort:
        ordered[:n] ^= 0xFFF
        ordered[:n].sort()
        ordered[:n] ^= 0xFFF
    terms = np.empty(n, np.float64)
    total = 0.0
    for i in range(n):
        terms[i] = exp(_scaled(x[ordered[i] & 0xFFF], top, temperature))
        total += terms[i]
    if p < 1.0:
        wanted = p * total
        kept = 0
        total = 0.0
        while kept < n and (kept == 0 or total < wanted):
            total += terms[kept]
            kept += 1
        n = kept
    cut[COUNT] = n
    cut[KEY] = 0xFFFFFFFF - (ordered[n - 1] >> 12)
    if by_sort:
        cut[FIRST] = ordered[n - 1] & 0xFFF
    else:
        cut[FINAL] = ordered[n - 1] & 0xFFF
    return log(total)


@inner
def _cut_mass(
    x: Any,
    bits: Any,
    top: float,
    p: float,
    temperature: float,
    by_sort: bool,
    masses: Any,
    cut: Any,
) -> float:
    """Narrow `cut` to the smallest prefix of mass p; returns log_mass."""
    key_cut = cut[KEY]
    final = cut[FINAL]
    masses[:] = 0.0
    for i in range(len(x)):
        key = key_of(bits[i])
        if key > key_cut or (key == key_cut and i <= final):
            masses[key >> 16] += exp(_scaled(x[i], top, temperature))
    total = 0.0
    for bin in range(BINS - 1, -1, -1):
        total += masses[bin]
    if p >= 1.0:
        return log(total)
    wanted = p * total
    reached = 0.0
    high = BINS - 1
    lowest = key_cut >> 16
    while high > lowest and reached + masses[high] < wanted:
        reached += masses[high]
        high -= 1
    ordered = _sorted_bin(bits, high, key_cut, not by_sort)
    key = key_cut
    index = 0
    for n in range(len(ordered)):
        key = (high << 16) | (0xFFFF - (ordered[n] >> 46))
        index = ordered[n] & ((1 << 46) - 1)
        if by_sort:
            index = (1 << 46) - 1 - index
        if key == key_cut and index > final:
            break
        reached += exp(_scaled(x[index], top, temperature))
        cut[KEY] = key
        if by_sort:
            cut[FIRST] = index
            cut[FINAL] = LAST
        else:
            cut[FIRST] = 0
            cut[FINAL] = index
        if reached >= wanted:
            break
    count = 0
    for i in range(len(x)):
        key = key_of(bits[i])
        count += key > cut[KEY] or (key == cut[KEY] and cut[FIRST] <= i <= cut[FINAL])
    cut[COUNT] = count
    return log(reached)


@jit
def kept_row(bits: Any, cut: Any, indices: Any) -> Int:
    """Fill `indices` (int64) with the first kept ones, by index; returns how many there were."""
    n = 0
    for i in range(len(bits)):
        key = key_of(bits[i])
        if key > cut[KEY] or (key == cut[KEY] and cut[FIRST] <= i <= cut[FINAL]):
            if n < len(indices):
                indices[n] = i
            n += 1
    return n


@jit
def draw_row(x: Any, bits: Any, cut: Any, temperature: float, seed: Int, position: Int) -> Int:
    """The token with the largest (x - max) / temperature + Gumbel noise; -1 where none is kept.

    Of equal sums the lowest index wins.
    """
    chosen = -1
    best = -np.inf
    top: float = np.float64(0.0)
    for i in range(len(x)):
        if key_of(bits[i]) == cut[TOP]:
            top = np.float64(x[i])
            break
    for i in range(len(x)):
        key = key_of(bits[i])
        if key > cut[KEY] or (key == cut[KEY] and cut[FIRST] <= i <= cut[FINAL]):
            scaled = 0.0
            if temperature > 0.0:
                scaled = _scaled(x[i], top, temperature)
            score = scaled - log(exponential(seed, position, i))
            if chosen < 0 or score > best:
                chosen = i
                best = score
    return chosen
