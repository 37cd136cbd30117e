"""The structs of kernels/trie.cuh and kernels/search.cuh as rows of 64-bit words.

Every field there has 8 bytes, so a struct is an array of uint64 in the order of these names; a
test reads the names out of the headers and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats.schema import (
    COUNTS,
    LEVEL_SECTIONS,
    PARAMETER,
    PARAMETERS,
    SECTION,
    WHOLE_SECTIONS,
    Header,
    counts,
)

# What a level has beside its sections.
DERIVED = ("firsts", "kinds", "kind_ranks", "tail_starts")
LEVEL_FIELDS = (*PARAMETERS, *DERIVED)

TRIE_FIELDS = (
    "levels",
    "depth",
    *COUNTS,
    *WHOLE_SECTIONS,
    "store_flag_fine",
    "tail_start_bits",
    "rank_table",
    "rank_table_size",
    "rank_hash",
    "rank_hash_shift",
)
WORKSPACE_FIELDS = (
    "ranks_at",
    "most_at",
    "history_at",
    "keys_at",
    "units_at",
    "places_at",
    "nexts_at",
    "bins_at",
    "cursors_at",
    "digits_at",
    "pool_keys_at",
    "pool_places_at",
    "sorted_at",
    "table_at",
)
RESULT_FIELDS = ("counts", "key_ids", "scores", "lengths", "result_tokens", "values")
TOKEN_FIELDS = ("tokens", "token_bytes", "token_signed")
SEARCH_FIELDS = (
    *TOKEN_FIELDS,
    "logprobs",
    "end_logprobs",
    "end_stride",
    "penalties",
    "ranks",
    "queries",
    "given_steps",
    "steps",
    "width",
    "beam_width",
    "group",
    "list_size",
    "pool_size",
    "wide_slot_bits",
    "work",
    "work_bytes",
    *WORKSPACE_FIELDS,
    "counters",
    *RESULT_FIELDS,
    "active_beams",
    "candidates",
    "error",
)


def level_words(
    parameters: npt.NDArray[np.int64],
    addresses: Mapping[str, int],
    derived: Mapping[str, npt.NDArray[np.uint64]],
) -> npt.NDArray[np.uint64]:
    """The levels [D, fields]: `schema.level_parameters` with addresses in place of offsets.

    `addresses` are of sections, `derived` [D] of what DERIVED names.
    """
    words = np.zeros((len(parameters), len(LEVEL_FIELDS)), np.uint64)
    words[:, : len(PARAMETERS)] = parameters
    for name in LEVEL_SECTIONS:
        column = PARAMETER[f"{name}_offset"]
        offsets = parameters[:, column].astype(np.uint64)
        words[:, column] = np.uint64(addresses[name]) + offsets * SECTION[name].dtype.itemsize
    for index, name in enumerate(DERIVED):
        words[:, len(PARAMETERS) + index] = derived[name]
    return words


def tail_start_bits(header: Header) -> int:
    """Bits of an element of `tail_starts`: a position in the store, a label, or neither."""
    return (header.store_tokens + header.alphabet_size).bit_length()


def trie_words(
    header: Header,
    addresses: Mapping[str, int],
    levels: int,
    store_flag_fine: int,
    rank_table: int,
    rank_table_size: int,
    rank_hash: int,
    rank_hash_shift: int,
) -> npt.NDArray[np.uint64]:
    """The trie; the last arguments are what is derived, and the alphabet inverted."""
    values = {
        "levels": levels,
        "depth": header.levels,
        **counts(header),
        **{name: addresses[name] for name in WHOLE_SECTIONS},
        "store_flag_fine": store_flag_fine,
        "tail_start_bits": tail_start_bits(header),
        "rank_table": rank_table,
        "rank_table_size": rank_table_size,
        "rank_hash": rank_hash,
        "rank_hash_shift": rank_hash_shift,
    }
    return words(TRIE_FIELDS, values)


def token_values(tokens: Any) -> dict[str, int]:
    """What the kernels must know of an integer array on the device."""
    signed = int(tokens.dtype.kind == "i")
    return dict(zip(TOKEN_FIELDS, (tokens.data.ptr, tokens.itemsize, signed), strict=True))


def token_words(tokens: Any) -> npt.NDArray[np.uint64]:
    """An integer array on the device as struct Tokens of kernels/tokens.cuh."""
    return words(TOKEN_FIELDS, token_values(tokens))


def search_words(trie: npt.NDArray[np.uint64], values: Mapping[str, int]) -> npt.NDArray[np.uint64]:
    """The arguments of a search: the trie, then SEARCH_FIELDS."""
    return np.concatenate([trie, words(SEARCH_FIELDS, values)])


def words(names: tuple[str, ...], values: Mapping[str, int]) -> npt.NDArray[np.uint64]:
    """Integers of any sign, in the order of `names`, as the 64-bit words of a struct."""
    mask = (1 << 64) - 1
    return np.array([int(values[name]) & mask for name in names], np.uint64)


def by_value(struct: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    """The words of a struct as one element, which CuPy passes to a kernel by value."""
    return struct.view(np.dtype((np.void, struct.nbytes)))
