"""Keywords as byte strings whose order is the order of their rank sequences.

A rank takes 1 to 5 bytes, few for frequent tokens. The first byte tells how many, and is never
zero, so that a code string padded with zeros sorts before its extensions. In key sets with
power-law tokens a token takes about 1.7 bytes, and the first 8 bytes of a code string, one
64-bit comparison, tell most keywords apart.

| first byte | bytes | ranks                  |
|------------|-------|------------------------|
| 01 to 80   | 1     | 128                    |
| 81 to c0   | 2     | 64 x 2^8               |
| c1 to f7   | 3     | 55 x 2^16              |
| f8 to fe   | 4     | 7 x 2^24               |
| ff         | 5     | all others below 2^32  |

A record is a code string behind its length: one byte below 255, or 255 and two bytes more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashtrie.formats.jit import Int, jit

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

FIRST_2 = 128
FIRST_3 = FIRST_2 + 64 * 2**8
FIRST_4 = FIRST_3 + 55 * 2**16
FIRST_5 = FIRST_4 + 7 * 2**24
MAX_CODE_BYTES = 5
MAX_RECORD_HEADER = 3
_WIDE = 255


@jit
def code_words(ranks: U32, out: U64) -> None:
    """Codes of `ranks` as `encode` wants them: bytes from the top of a word, their number below."""
    for i in range(len(ranks)):
        r = np.int64(ranks[i])
        if r < FIRST_2:
            size, code = 1, r + 0x01
        elif r < FIRST_3:
            size, code = 2, r - FIRST_2 + 0x8100
        elif r < FIRST_4:
            size, code = 3, r - FIRST_3 + 0xC10000
        elif r < FIRST_5:
            size, code = 4, r - FIRST_4 + 0xF8000000
        else:
            size, code = 5, r + 0xFF00000000
        out[i] = np.uint64(code) << np.uint64(64 - 8 * size) | np.uint64(size)


@jit
def encode(
    tokens: U32,
    offsets: I64,
    code_of: U64,
    reverse: bool,
    out: U8,
    starts: I64,
    prefixes: U64,
) -> Int:
    """Write one record a row to `out`; returns the bytes written. About 4 ns a token.

    tokens uint32 [n] index `code_of`, uint64 words of `code_words`; offsets int64 [rows + 1].
    `reverse` encodes each row from its last token to its first. out has room for MAX_CODE_BYTES
    a token, MAX_RECORD_HEADER a row, and 8 bytes more. starts int64 [rows + 1] receives where
    each record begins, prefixes uint64 [rows] the first 8 code bytes, zero-padded.
    """
    # The length of a code is hard to predict, so there is no branch on it: all bytes are stored
    # before p advances by the length. Unsigned indices spare the test for negative ones. Both
    # together make 4 ns of 19.
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    byte, word = np.uint64(255), np.uint64(64)
    step = ~np.uint64(0) if reverse else one
    p = np.uint64(0)
    for row in range(len(offsets) - 1):
        first, last = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        starts[row] = p
        head = p
        wide = (last - first) * np.uint64(MAX_CODE_BYTES) >= np.uint64(_WIDE)
        p += np.uint64(MAX_RECORD_HEADER) if wide else one
        begin = p
        prefix = np.uint64(0)
        shift = np.uint64(0)
        k = last - one if reverse else first
        for _ in range(last - first):
            entry = code_of[tokens[k]]
            k += step
            size = entry & byte
            code = entry ^ size
            out[p] = code >> np.uint64(56)
            out[p + one] = code >> np.uint64(48) & byte
            out[p + two] = code >> np.uint64(40) & byte
            if size > three:
                out[p + three] = code >> np.uint64(32) & byte
                out[p + four] = code >> np.uint64(24) & byte
            if shift < word:
                prefix |= code >> shift
            shift += size << three
            p += size
        prefixes[row] = prefix
        size = p - begin
        if wide:
            out[head] = _WIDE
            out[head + one] = size >> np.uint64(8)
            out[head + two] = size & byte
        else:
            out[head] = size
    starts[len(offsets) - 1] = p
    return p


@jit
def record(data: U8, at: Int) -> tuple[Int, Int]:
    """(where the code string begins, its bytes) of the record at `at`."""
    size = np.int64(data[at])
    if size < _WIDE:
        return at + 1, size
    return at + MAX_RECORD_HEADER, (np.int64(data[at + 1]) << 8) | np.int64(data[at + 2])


@jit
def whole_records(data: U8, most: Int) -> tuple[Int, Int]:
    """(records, their bytes) at the start of `data`, whose end may cut one; at most `most`."""
    n, at = 0, np.int64(0)
    while n < most and at < len(data):
        if data[at] == _WIDE and at + MAX_RECORD_HEADER > len(data):
            break
        begin, size = record(data, at)
        if begin + size > len(data):
            break
        n, at = n + 1, begin + size
    return n, at


def header_bytes(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The bytes before code strings of these lengths in the shortest records of them."""
    return np.where(lengths < _WIDE, 1, MAX_RECORD_HEADER).astype(np.int32)


@jit
def copy_records(data: U8, begins: I64, lengths: npt.NDArray[np.int32], out: U8) -> None:
    """Write the code strings that begin at `begins` as records."""
    at = np.int64(0)
    for i in range(len(begins)):
        size = np.int64(lengths[i])
        if size < _WIDE:
            out[at] = size
            at += 1
        else:
            out[at], out[at + 1], out[at + 2] = _WIDE, size >> 8, size & 255
            at += MAX_RECORD_HEADER
        out[at : at + size] = data[begins[i] : begins[i] + size]
        at += size


@jit
def decode(data: U8, begin: Int, size: Int, ranks: U32) -> Int:
    """Write the ranks of a code string to `ranks` uint32; returns how many. About 3 ns a token."""
    p = begin
    n = 0
    while p < begin + size:
        b = np.int64(data[p])
        if b < 0x81:
            r = b - 1
            p += 1
        elif b < 0xC1:
            r = ((b - 0x81) << 8 | np.int64(data[p + 1])) + FIRST_2
            p += 2
        elif b < 0xF8:
            r = ((b - 0xC1) << 16 | np.int64(data[p + 1]) << 8 | np.int64(data[p + 2])) + FIRST_3
            p += 3
        else:
            if b < 0xFF:
                high, base = (b - 0xF8) << 24, FIRST_4
            else:
                p += 1
                high, base = np.int64(data[p]) << 24, 0
            r = (
                high
                | np.int64(data[p + 1]) << 16
                | np.int64(data[p + 2]) << 8
                | np.int64(data[p + 3])
            ) + base
            p += 4
        ranks[n] = r
        n += 1
    return n


@jit
def count(data: U8, begin: Int, size: Int) -> Int:
    """The number of ranks in a code string."""
    p = begin
    n = 0
    while p < begin + size:
        b = data[p]
        p += 1 if b < 0x81 else 2 if b < 0xC1 else 3 if b < 0xF8 else 4 if b < 0xFF else 5
        n += 1
    return n


@jit
def compare(a: U8, a_begin: Int, a_size: Int, b: U8, b_begin: Int, b_size: Int) -> Int:
    """Below, at or above 0 as code string a sorts before, with or behind code string b."""
    for k in range(min(a_size, b_size)):
        x, y = np.int64(a[a_begin + k]), np.int64(b[b_begin + k])
        if x != y:
            return x - y
    return a_size - b_size
