"""How a search is laid out on the device: the variant of the kernel, who works on what, and where.

Arithmetic alone: nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashtrie.formats.errors import ResourceError

BINS = 2048  # of search.cu's histograms
ROWS = 4  # children that a lane looks at in a turn
_DIGITS = 256
_NARROW_SETS = 3
_BIN_SETS = 8  # of this step and the next, of two waves, of beams and keywords
_ALIGNMENT = 256
_COUNTER_BYTES = 128  # of a team's barrier, a cache line of its own

_SLACK = 1024  # entries of a list beyond the beam width
_POOL_BEAMS = 8  # beams' worth of entries that a pool takes before it is cut

THREADS = 1024
PROPOSAL_THREADS = 256  # of proposals.cu
BLOCKS = 1  # of a multiprocessor

# Variants of the kernel: up to how many proposals a step, and what they are compiled with, the best
# first. Up to 4,096 proposals the set of a step is in shared memory, with log2 of its slots and of
# the bits of its filter; wider steps have their slots in L2. A device takes the first that its
# blocks have room for: 227 KiB on compute capability 9.0 and 10.0, 163 on 8.0, 99 on 8.6 and 8.9.
_ROOMY = {"GROUPS": 4096, "STAGE": 4096}
_MIDDLE = {"GROUPS": 4096, "STAGE": 2048}
_SMALL = {"GROUPS": 2048, "STAGE": 1024}
_VARIANTS: tuple[tuple[int, dict[str, int]], ...] = (
    (1024, {"SLOT_BITS": 11, "FILTER_BITS": 15, **_ROOMY}),
    (1024, {"SLOT_BITS": 11, "FILTER_BITS": 15, **_MIDDLE}),
    (1024, {"SLOT_BITS": 11, "FILTER_BITS": 14, **_SMALL}),
    (4096, {"SLOT_BITS": 13, "FILTER_BITS": 16, "GROUPS": 2048, "STAGE": 2048}),
    (1 << 16, {"SLOT_BITS": 0, "FILTER_BITS": 17, **_ROOMY}),
    (1 << 16, {"SLOT_BITS": 0, "FILTER_BITS": 17, **_SMALL}),
)
# The variant that counts what it reads: log2 of the sectors that it can tell apart, 8 GiB of them.
COUNTING = {"TOUCHED_BITS": 28}

WIDTHS = (1024, 4096, 1 << 16)  # where the variant changes

_BLOCK_FIXED_BYTES = 2080  # of struct Block in kernels/search.cuh, before its first long array


def defines(
    width: int, changes: Mapping[str, int] | None = None, shared_bytes: int = 227 << 10
) -> dict[str, int]:
    """What the kernel is compiled with for `width` proposals a step.

    `shared_bytes` are what a block of the device may have. `changes` replace some of it, for
    measurements and to force rare paths in tests. Raises ResourceError where nothing fits.
    """
    least = 0
    for most, sizes in _VARIANTS:
        if width > most:
            continue
        compiled = {"THREADS": THREADS, "BLOCKS": BLOCKS, **sizes, **(changes or {})}
        least = block_bytes(compiled)
        if least <= shared_bytes:
            return compiled
    raise ResourceError(
        "the GPU is too small for the search",
        cause=f"a block takes {least:,} bytes of shared memory, and can have {shared_bytes:,}",
        hint="Search with --device cpu",
    )


def block_bytes(compiled: Mapping[str, int]) -> int:
    """Shared memory of a block: the size of struct Block in kernels/search.cuh.

    `make kernels` compares it with that of the compiled kernel.
    """
    slots = 1 << compiled["SLOT_BITS"]
    width = max(slots // 2, 1)
    size = _BLOCK_FIXED_BYTES + 12 * compiled.get("BINS", BINS) + 8 * _DIGITS
    size = _aligned(size + 10 * compiled["GROUPS"], 16)
    size += (1 << compiled["FILTER_BITS"]) // 8 + 8 * slots + 12 * width
    size += compiled["THREADS"] * compiled.get("ROWS", ROWS)
    return _aligned(size, 16) + 16 * compiled["STAGE"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a search: queries, steps as given and as searched, proposals, beams."""

    queries: int
    given_steps: int
    steps: int
    width: int
    beam_width: int


@dataclass(frozen=True)
class Plan:
    """Blocks, and the memory of the teams.

    `fields` are arguments of the kernel by name.
    """

    group: int  # blocks of a team
    teams: int
    fields: dict[str, int]

    @property
    def work_bytes(self) -> int:
        """Memory of one team. The first `zero_bytes` of it must be zero before a first launch."""
        return self.fields["work_bytes"]

    @property
    def zero_bytes(self) -> int:
        """What a launch finds zero, and leaves zero."""
        return self.fields["ranks_at"]

    @property
    def counter_bytes(self) -> int:
        """Memory of the barriers of all teams, zero before a first launch."""
        return _COUNTER_BYTES * self.teams

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.group * self.teams


def plan_search(
    shape: Shape,
    compiled: Mapping[str, int],
    resident_blocks: int,
    free_bytes: int,
    most_group: int | None = None,
) -> Plan:
    """Share `resident_blocks` out over the queries, in at most `free_bytes` of memory.

    `compiled` are the `defines` of the kernel that can be resident in so many blocks. Fewer teams
    than queries take them in turns. Raises ResourceError where one team has no room.
    """
    offsets, work_bytes = _workspace(shape, compiled)
    teams = min(shape.queries, resident_blocks, free_bytes // work_bytes)
    if teams == 0:
        raise ResourceError(
            "not enough GPU memory for a search",
            cause=f"one query takes {work_bytes:,} bytes, {free_bytes:,} are free",
            hint="Use fewer beams, steps or proposals",
        )
    group = max(resident_blocks // teams, 1)
    if most_group is not None:
        group = min(group, most_group)
    fields = {
        **offsets,
        "group": group,
        "list_size": list_size(shape.beam_width),
        "pool_size": _pool_size(shape.beam_width),
        "wide_slot_bits": wide_slot_bits(shape.width),
        "work_bytes": work_bytes,
        "queries": shape.queries,
        "given_steps": shape.given_steps,
        "steps": shape.steps,
        "width": shape.width,
        "beam_width": shape.beam_width,
    }
    return Plan(group, teams, fields)


def list_size(beam_width: int, slack: int | None = None) -> int:
    """Entries of the list of a step's beams, before it is cut to the beam width."""
    return beam_width + (max(_SLACK, beam_width // 4) if slack is None else slack)


def _pool_size(beam_width: int) -> int:
    return _POOL_BEAMS * beam_width + list_size(beam_width)


def wide_slot_bits(width: int) -> int:
    """log2 of the slots for `width` proposals, at most half of them taken."""
    return max((2 * width - 1).bit_length(), 1)


def _workspace(shape: Shape, compiled: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Where the parts of a team's memory begin, and its size. O(T B + T K) bytes.

    Those that must be zero come first.
    """
    entries = list_size(shape.beam_width)
    pool = _pool_size(shape.beam_width)
    wide = compiled["SLOT_BITS"] == 0
    bins = compiled.get("BINS", BINS)
    parts = {
        "most_at": 4 * 2 * (shape.steps + 1),
        "bins_at": 4 * _BIN_SETS * bins,
        "digits_at": 4 * _NARROW_SETS * 2 * _DIGITS,
        "ranks_at": 4 * shape.steps * shape.width,
        "history_at": 4 * shape.steps * shape.beam_width,
        "keys_at": 8 * 2 * entries,
        "units_at": 4 * 2 * entries,
        "places_at": 16 * 2 * entries,
        "nexts_at": 8 * entries,
        "cursors_at": 4 * 2 * bins,
        "pool_keys_at": 16 * 2 * pool,
        "pool_places_at": 8 * 2 * pool,
        "sorted_at": 16 * max(entries, pool),
        "table_at": (4 * 2 * 2 << wide_slot_bits(shape.width)) if wide else 0,
    }
    offsets = {}
    end = 0
    for name, size in parts.items():
        offsets[name] = end
        end += _aligned(size, _ALIGNMENT)
    return offsets, end


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
