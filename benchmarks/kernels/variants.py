"""Variants of the search kernel, from the paper's shape on, each with what it changes.

A variant is what gpu/kernels/search.cu is compiled with; benchmarks/results has the figures. The
first is the paper's: beams over blocks, proposals over threads, a binary search for every pair.
"""

from __future__ import annotations

from typing import NamedTuple

_OFF = 1 << 20  # units a warp, which no step has


class Variant(NamedTuple):
    """A name, the idea in a line, and the macros that differ from the product's."""

    name: str
    idea: str
    changes: dict[str, int]


VARIANTS = (
    Variant(
        "01-paper",
        "every proposal is searched for among the children of every beam; sections alone",
        {"SCAN_CHILDREN": 0, "DERIVED": 0, "WAVE_UNITS": _OFF},
    ),
    Variant(
        "02-scan",
        "children are read whole against a hash of the proposals, where that is less work",
        {"DERIVED": 0, "WAVE_UNITS": _OFF},
    ),
    Variant(
        "03-derived",
        "kinds of nodes, first children and starts of tails beside the sections",
        {"WAVE_UNITS": _OFF},
    ),
    Variant("04-waves", "each beam's best proposals first, then what their bounds let pass", {}),
    Variant("05-waves-of-4", "4 proposals in the first wave, not 8", {"FIRST_PROPOSALS": 4}),
    Variant("06-waves-of-32", "32 proposals in the first wave", {"FIRST_PROPOSALS": 32}),
    Variant("07-waves-sooner", "two waves from 1 unit a warp on, not 4", {"WAVE_UNITS": 1}),
    Variant("08-rows-of-8", "256 children a unit, not 128", {"ROWS": 8}),
    Variant("09-512-threads", "blocks of 512 threads, not 1,024", {"THREADS": 512}),
    Variant("10-waves-of-2", "2 proposals in the first wave", {"FIRST_PROPOSALS": 2}),
    Variant("11-waves-later", "two waves from 8 units a warp on", {"WAVE_UNITS": 8}),
    Variant(
        "12-a-lane-a-search",
        "each proposal that is searched for among siblings by one lane, not up to 8",
        {"MOST_LANES": 0},
    ),
    Variant("13-4-lanes-a-search", "4 lanes at most, not 8", {"MOST_LANES": 2}),
    Variant("14-1024-bins", "half as many bins of scores, twice as wide", {"BINS": 1024}),
    Variant(
        "15-root-scanned",
        "the children of the root are scanned as any node's, not looked up in its bitmap",
        {"ROOT_BITMAP": 0},
    ),
    Variant(
        "16-ranks-each-step",
        "every block maps the proposals of each step to ranks, beside the team, which does so once",
        {"RANKS_ONCE": 0},
    ),
    Variant(
        "17-a-warp-a-tail",
        "a warp takes one beam in a tail, as it takes one in a node, not 32 side by side",
        {"TAIL_LANES": 1},
    ),
)

# What the sanitizer looks at: changes, blocks of a team, beam width.
SANITIZED: tuple[tuple[dict[str, int], int | None, int], ...] = (
    ({}, None, 100),
    ({"WAVE_UNITS": 0}, 3, 100),
    ({"STAGE": 128, "GROUPS": 16, "SMALL_BIN": 4}, 2, 60),
    ({"SLOT_BITS": 0, "FILTER_BITS": 10}, 1, 100),
)
