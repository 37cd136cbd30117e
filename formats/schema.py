"""Format version 1 as tables: the sections, the level table, and the sizes that follow from it.

docs/format.md is the same contract in prose. `sizes` is where every array length in the product
comes from: the writer reserves by it, the reader checks by it, and the engines take their
offsets from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FORMAT = "flashtrie"
# A reader refuses a higher version by name of both, and knows all lower ones.
VERSION = 1

ALIGNMENT = 64
CHUNK_BYTES = 1 << 20
DIGEST_BYTES = 16

MAX_TOKEN = 2**32 - 2
MAX_LENGTH = 4096
MAX_LEVEL_NODES = 2**32 - 1
MIN_LOW_BITS, MAX_LOW_BITS = 4, 16

BLOCK_BITS = 512  # of a rank directory
SELECT_ONES = 512  # ones per entry of a select directory


class Section(NamedTuple):
    """A tensor of the file: its name, dtype, and whether each level has its own part."""

    name: str
    dtype: np.dtype[np.generic]
    per_level: bool


_DTYPES: dict[str, np.dtype[np.generic]] = {
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
}
DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def _coded(prefix: str, rank_dtype: str, per_level: bool) -> list[tuple[str, str, bool]]:
    return [
        (f"{prefix}_low", "U64", per_level),
        (f"{prefix}_flag", "U64", per_level),
        (f"{prefix}_flag_rank", rank_dtype, per_level),
        (f"{prefix}_high", "U64", per_level),
    ]


SECTIONS: tuple[Section, ...] = tuple(
    Section(name, _DTYPES[dtype], per_level)
    for name, dtype, per_level in [
        ("level_table", "I64", False),
        ("alphabet", "U32", False),
        ("root", "U64", False),
        ("root_rank", "U32", False),
        *_coded("label", "U32", True),
        ("inner", "U64", True),
        ("inner_rank", "U32", True),
        ("louds", "U64", True),
        ("louds_rank", "U32", True),
        ("louds_select", "U32", True),
        ("terminal", "U64", True),
        ("terminal_rank", "U32", True),
        ("tail", "U64", True),
        ("tail_rank", "U32", True),
        ("tail_long", "U64", True),
        ("tail_long_rank", "U32", True),
        *_coded("tail_token", "U32", True),
        *_coded("tail_index", "U32", True),
        *_coded("store", "U64", False),
        ("store_end", "U64", False),
        ("store_end_rank", "U64", False),
        ("store_end_select", "U32", False),
        ("values", "U64", False),
        ("chunk_digests", "U8", False),
    ]
)
SECTION = {section.name: section for section in SECTIONS}
LEVEL_SECTIONS = tuple(section.name for section in SECTIONS if section.per_level)
# What is not of a level: sections that searches and lookups read, and counts (see `counts`).
WHOLE_SECTIONS = tuple(
    section.name
    for section in SECTIONS
    if not section.per_level and section.name not in ("level_table", "chunk_digests")
)
COUNTS = (
    "keywords",
    "alphabet_size",
    "vocab_size",
    "max_length",
    "implicit",  # 1 where tails are, else 0
    "store_tokens",
    "store_low_bits",
    "store_high_bits",
    "store_highs",
    "value_bits",
    "value_min",
)

LEVEL_COLUMNS = (
    "nodes",
    "inner",
    "terminals",
    "tails",
    "long_tails",
    "label_low_bits",
    "label_high_bits",
    "label_highs",
    "tail_token_low_bits",
    "tail_token_high_bits",
    "tail_token_highs",
    "tail_index_low_bits",
    "tail_index_high_bits",
    "tail_index_highs",
)
COLUMN = {name: index for index, name in enumerate(LEVEL_COLUMNS)}

# The engines' level parameters: the level table, then for each level what came before it.
PARAMETERS = (
    *LEVEL_COLUMNS,
    "first_key",  # key id of the level's first keyword
    "first_long_tail",  # long tails of the levels before
    *(f"{name}_offset" for name in LEVEL_SECTIONS),  # in elements of the section
)
PARAMETER = {name: index for index, name in enumerate(PARAMETERS)}


class Coding(NamedTuple):
    """How an array of integers is split: low part, high part, and how many have one."""

    low_bits: int
    high_bits: int
    highs: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the metadata says: counts, coding of the tail store, values, tags, digest.

    `level_table` is int64 [levels, 14], as in the section of that name.
    """

    keywords: int
    nodes: int
    alphabet_size: int
    vocab_size: int
    max_length: int
    tails: str  # "implicit" or "indexed"
    store_tokens: int
    store_tails: int
    store: Coding
    values: int
    value_min: int
    value_bits: int
    level_table: npt.NDArray[np.int64]
    tags: dict[str, str] = field(default_factory=dict)
    digest: str = ""

    @property
    def levels(self) -> int:
        """The number of levels, D."""
        return len(self.level_table)


def words(bits: int) -> int:
    """64-bit words that hold `bits` bits."""
    return (bits + 63) // 64


def rank_entries(bits: int) -> int:
    """Entries of the rank directory of a bitmap of `bits` bits."""
    return bits // BLOCK_BITS + 1 if bits else 0


def select_entries(ones: int) -> int:
    """Entries of the select directory of a bitmap with `ones` ones."""
    return (ones - 1) // SELECT_ONES + 2 if ones else 0


def _even(entries: int) -> int:
    """32-bit entries of a level, padded to a 64-bit word."""
    return entries + (entries & 1)


def _coded_sizes(prefix: str, count: int, coding: Coding) -> dict[str, int]:
    flags = count if coding.high_bits else 0
    return {
        f"{prefix}_low": words(count * coding.low_bits),
        f"{prefix}_flag": words(flags),
        f"{prefix}_flag_rank": rank_entries(flags),
        f"{prefix}_high": words(coding.highs * coding.high_bits),
    }


def level_sizes(row: npt.NDArray[np.int64], next_nodes: int, first: bool) -> dict[str, int]:
    """Elements of each per-level section that one level takes, its padding to a word included.

    `row` is the level's row of the level table, `next_nodes` the nodes of the level below, and
    `first` says that it is level 1, which has no labels.
    """
    nodes, inner, terminals, tails, long_tails = (int(row[COLUMN[c]]) for c in LEVEL_COLUMNS[:5])
    del terminals
    leaves = nodes - inner
    coding = {
        prefix: Coding(*(int(row[COLUMN[f"{prefix}_{c}"]]) for c in Coding._fields))
        for prefix in ("label", "tail_token", "tail_index")
    }
    sizes = {
        **_coded_sizes("label", 0 if first else nodes, coding["label"]),
        "inner": words(nodes),
        "inner_rank": rank_entries(nodes),
        "louds": words(next_nodes),
        "louds_rank": rank_entries(next_nodes),
        "louds_select": select_entries(inner),
        "terminal": words(inner),
        "terminal_rank": rank_entries(inner),
        "tail": words(leaves),
        "tail_rank": rank_entries(leaves),
        "tail_long": words(tails),
        "tail_long_rank": rank_entries(tails),
        **_coded_sizes("tail_token", tails - long_tails, coding["tail_token"]),
        **_coded_sizes("tail_index", long_tails, coding["tail_index"]),
    }
    return {
        name: _even(size) if SECTION[name].dtype.itemsize == 4 else size
        for name, size in sizes.items()
    }


def sizes(header: Header) -> dict[str, int]:
    """True length in elements of every section. O(levels).

    Of a header whose counts were not checked yet the result may be any integers.
    """
    table = header.level_table
    result = dict.fromkeys((section.name for section in SECTIONS), 0)
    for d in range(header.levels):
        next_nodes = int(table[d + 1, 0]) if d + 1 < header.levels else 0
        for name, size in level_sizes(table[d], next_nodes, d == 0).items():
            result[name] += size
    implicit = header.tails == "implicit"
    result |= {
        "level_table": table.size,
        "alphabet": header.alphabet_size,
        "root": words(header.alphabet_size),
        "root_rank": rank_entries(header.alphabet_size),
        **_coded_sizes("store", header.store_tokens, header.store),
        "store_end": words(header.store_tokens),
        "store_end_rank": rank_entries(header.store_tokens) if implicit else 0,
        "store_end_select": select_entries(header.store_tails) if implicit else 0,
        "values": words(header.values * header.value_bits),
    }
    result["chunk_digests"] = sum(
        DIGEST_BYTES * -(-padded_bytes(s.name, result[s.name]) // CHUNK_BYTES)
        for s in SECTIONS
        if s.name != "chunk_digests"
    )
    return result


def padded_bytes(name: str, length: int) -> int:
    """Bytes that a section of `length` elements takes in the file."""
    return -(-length * SECTION[name].dtype.itemsize // ALIGNMENT) * ALIGNMENT


def counts(header: Header) -> dict[str, int]:
    """What COUNTS names, of a header."""
    return {
        "keywords": header.keywords,
        "alphabet_size": header.alphabet_size,
        "vocab_size": header.vocab_size,
        "max_length": header.max_length,
        "implicit": int(header.tails == "implicit"),
        "store_tokens": header.store_tokens,
        "store_low_bits": header.store.low_bits,
        "store_high_bits": header.store.high_bits,
        "store_highs": header.store.highs,
        "value_bits": header.value_bits,
        "value_min": header.value_min,
    }


def level_parameters(header: Header) -> npt.NDArray[np.int64]:
    """The engines' parameters of each level: int64 [levels, len(PARAMETERS)]. O(levels)."""
    table = header.level_table
    result = np.zeros((header.levels, len(PARAMETERS)), np.int64)
    result[:, : len(LEVEL_COLUMNS)] = table
    nodes, inner = table[:, COLUMN["nodes"]], table[:, COLUMN["inner"]]
    keys = nodes - inner + table[:, COLUMN["terminals"]]
    result[1:, PARAMETER["first_key"]] = np.cumsum(keys)[:-1]
    result[1:, PARAMETER["first_long_tail"]] = np.cumsum(table[:, COLUMN["long_tails"]])[:-1]
    offsets = dict.fromkeys(LEVEL_SECTIONS, 0)
    for d in range(header.levels):
        next_nodes = int(nodes[d + 1]) if d + 1 < header.levels else 0
        for name, size in level_sizes(table[d], next_nodes, d == 0).items():
            result[d, PARAMETER[f"{name}_offset"]] = offsets[name]
            offsets[name] += size
    return result
