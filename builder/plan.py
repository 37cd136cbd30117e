"""How a build divides its work: whether it spills, into how many ranges, and what that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashtrie.formats.errors import UsageError

# Rows of a range that is held in memory: its sort stays in a core's cache.
_CACHE_ROWS = 1 << 17
_SPILLED_RANGE_ROWS = 1 << 20
MAX_RANGES = 4096
# Bytes that a stage holds: peaks of resident memory on key sets of all shapes.
_HELD_TOKEN, _HELD_ROW = 12, 48  # a build in memory, at its peak
_RANGE_TOKEN, _RANGE_ROW = 8, 64  # one range between its records and its levels
_RANGE_BYTE = 5  # the same by the bytes of its records: a byte, and four where it is a token
_WRITE_TOKEN = 0.3  # a bitmap and its directories: of a level, or of where stored tails end
_THREAD_BYTES = 96 << 20  # a batch on its way from Parquet to records
# The least that is worth to be sorted at a time, and to be written at a time to each range.
_LEAST_RANGE_BYTES, _LEAST_BUFFER_BYTES = 4 << 20, 4 << 10
# Splitters come from a sample, so ranges differ; half again covers the largest.
_LARGEST_RANGE = 1.5
# Ids that are counted in a table for each thread, 8 bytes an id: the part of _THREAD_BYTES that
# is for it, and the most where there is memory left.
_LEAST_DENSE_TOKENS, _MOST_DENSE_TOKENS = 1 << 22, 1 << 24
_ALPHABET_BYTES = 128 << 20  # of an alphabet, the part of _THREAD_BYTES that is for it


@dataclass(frozen=True)
class BuildPlan:
    """rows and tokens by the footers; ranges; whether they spill; estimates in bytes.

    `range_bytes` is what one range may take while it is sorted, `buffer_bytes` what may wait to be
    written to all ranges together. Ids below `dense_tokens` are counted in a table.
    """

    rows: int
    tokens: int
    threads: int
    memory: int
    process_memory: int
    ranges: int
    spill: bool
    peak_memory: int
    scratch: int
    artifact: int
    range_bytes: int
    buffer_bytes: int
    dense_tokens: int


def plan_build(
    rows: int,
    tokens: int,
    has_values: bool,
    threads: int,
    memory: int,
    process_memory: int,
    alphabet_bytes: int = 0,
) -> BuildPlan:
    """Divide a build so that it fits `memory` bytes.

    `process_memory` is what the process takes before it begins, `alphabet_bytes` what the alphabet
    takes, once it is known. Raises UsageError that names the least memory that would do.
    """
    value_bytes = 16 if has_values else 0
    base = process_memory + threads * _THREAD_BYTES + max(0, alphabet_bytes - _ALPHABET_BYTES)
    held = base + _HELD_TOKEN * tokens + (_HELD_ROW + value_bytes) * rows
    work = math.ceil(_LARGEST_RANGE * (_RANGE_TOKEN * tokens + (_RANGE_ROW + value_bytes) * rows))
    # In memory at a time: ranges that are read, sorted, or waiting for a neighbour.
    in_flight = 2 * threads + 2
    spill = not _fits(held, memory)
    if spill:
        least_buffers = MAX_RANGES * _LEAST_BUFFER_BYTES
        least_range = max(_LEAST_RANGE_BYTES, math.ceil(work / MAX_RANGES))
        written = math.ceil(_WRITE_TOKEN * tokens)
        least = base + max(least_buffers + least_range * in_flight, written)
        least = min(least, held)
        if memory < least:
            raise UsageError(
                "the build does not fit into the memory given",
                "--memory",
                f"{memory >> 20:,} MiB for {rows:,} rows of {tokens:,} tokens on {threads} threads",
                f"Give at least {math.ceil(least / 2**20):,} MiB"
                + (", or fewer threads" if threads > 1 else ""),
            )
        buffer_bytes = max(least_buffers, (memory - base) // 8)
        range_bytes = (memory - base - buffer_bytes) // in_flight
        ranges = max(threads, math.ceil(work / range_bytes), rows // _SPILLED_RANGE_ROWS)
        sorting = min(buffer_bytes, work) + math.ceil(work / ranges) * in_flight
        peak = base + max(sorting, written)
        scratch = 4 * tokens + (4 + value_bytes // 2) * rows
    else:
        buffer_bytes = range_bytes = scratch = 0
        ranges = max(1, rows // _CACHE_ROWS)
        peak = held
    spare = max(0, memory - (base if spill else held)) // (2 * threads) // 8
    return BuildPlan(
        rows=rows,
        tokens=tokens,
        threads=threads,
        memory=memory,
        process_memory=process_memory,
        ranges=min(MAX_RANGES, ranges),
        spill=spill,
        peak_memory=peak,
        scratch=scratch,
        artifact=tokens + (2 + value_bytes // 4) * rows,
        range_bytes=range_bytes,
        buffer_bytes=buffer_bytes,
        dense_tokens=min(_MOST_DENSE_TOKENS, _LEAST_DENSE_TOKENS + spare),
    )


def range_bytes(rows: int, data_bytes: int) -> int:
    """About what a range takes while its records are sorted and made into levels."""
    return _RANGE_ROW * rows + _RANGE_BYTE * data_bytes


def affordable_threads(memory: int, process_memory: int) -> int:
    """How many threads take no more than half of the memory."""
    return max(1, (memory // 2 - process_memory) // _THREAD_BYTES)


def _fits(held: int, memory: int) -> bool:
    return held <= memory
