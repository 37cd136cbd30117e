"""The artifact as the kernels see it: three addresses, whatever its depth and sections.

All sections are parts of one mapped file, so that the file is all that a kernel needs beside the
numbers that say where each section of each level stands in it. An array for each section would be
forty arguments to every function, and most of the compile time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.compiled import inner
from flashtrie.cpu.instructions import i64
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

_COLUMNS = len(PARAMETERS)

# Columns of `levels`: formats.schema.PARAMETERS, with offsets in the file in place of the section.
NODES = PARAMETER["nodes"]
INNER = PARAMETER["inner"]
TERMINALS = PARAMETER["terminals"]
TAILS = PARAMETER["tails"]
LONG_TAILS = PARAMETER["long_tails"]
LABEL_LOW_BITS = PARAMETER["label_low_bits"]
LABEL_HIGH_BITS = PARAMETER["label_high_bits"]
LABEL_HIGHS = PARAMETER["label_highs"]
TAIL_TOKEN_LOW_BITS = PARAMETER["tail_token_low_bits"]
TAIL_TOKEN_HIGH_BITS = PARAMETER["tail_token_high_bits"]
TAIL_TOKEN_HIGHS = PARAMETER["tail_token_highs"]
TAIL_INDEX_LOW_BITS = PARAMETER["tail_index_low_bits"]
TAIL_INDEX_HIGH_BITS = PARAMETER["tail_index_high_bits"]
TAIL_INDEX_HIGHS = PARAMETER["tail_index_highs"]
FIRST_KEY = PARAMETER["first_key"]
FIRST_LONG_TAIL = PARAMETER["first_long_tail"]
LABEL_LOW = PARAMETER["label_low_offset"]
LABEL_FLAG = PARAMETER["label_flag_offset"]
LABEL_FLAG_RANK = PARAMETER["label_flag_rank_offset"]
LABEL_HIGH = PARAMETER["label_high_offset"]
INNER_BITS = PARAMETER["inner_offset"]
INNER_RANK = PARAMETER["inner_rank_offset"]
LOUDS = PARAMETER["louds_offset"]
LOUDS_RANK = PARAMETER["louds_rank_offset"]
LOUDS_SELECT = PARAMETER["louds_select_offset"]
TERMINAL = PARAMETER["terminal_offset"]
TERMINAL_RANK = PARAMETER["terminal_rank_offset"]
TAIL = PARAMETER["tail_offset"]
TAIL_RANK = PARAMETER["tail_rank_offset"]
TAIL_LONG = PARAMETER["tail_long_offset"]
TAIL_LONG_RANK = PARAMETER["tail_long_rank_offset"]
TAIL_TOKEN_LOW = PARAMETER["tail_token_low_offset"]
TAIL_TOKEN_FLAG = PARAMETER["tail_token_flag_offset"]
TAIL_TOKEN_FLAG_RANK = PARAMETER["tail_token_flag_rank_offset"]
TAIL_TOKEN_HIGH = PARAMETER["tail_token_high_offset"]
TAIL_INDEX_LOW = PARAMETER["tail_index_low_offset"]
TAIL_INDEX_FLAG = PARAMETER["tail_index_flag_offset"]
TAIL_INDEX_FLAG_RANK = PARAMETER["tail_index_flag_rank_offset"]
TAIL_INDEX_HIGH = PARAMETER["tail_index_high_offset"]

# Entries of `scalars`: the counts that are not of one level, and where such sections begin.
SCALARS = ("levels", *COUNTS, *WHOLE_SECTIONS)
_SCALAR = {name: index for index, name in enumerate(SCALARS)}
KEYWORDS = _SCALAR["keywords"]
LEVELS = _SCALAR["levels"]
ALPHABET_SIZE = _SCALAR["alphabet_size"]
VOCAB_SIZE = _SCALAR["vocab_size"]
MAX_LENGTH = _SCALAR["max_length"]
IMPLICIT = _SCALAR["implicit"]
STORE_TOKENS = _SCALAR["store_tokens"]
STORE_LOW_BITS = _SCALAR["store_low_bits"]
STORE_HIGH_BITS = _SCALAR["store_high_bits"]
STORE_HIGHS = _SCALAR["store_highs"]
VALUE_BITS = _SCALAR["value_bits"]
VALUE_MIN = _SCALAR["value_min"]
ALPHABET = _SCALAR["alphabet"]
ROOT = _SCALAR["root"]
ROOT_RANK = _SCALAR["root_rank"]
STORE_LOW = _SCALAR["store_low"]
STORE_FLAG = _SCALAR["store_flag"]
STORE_FLAG_RANK = _SCALAR["store_flag_rank"]
STORE_HIGH = _SCALAR["store_high"]
STORE_END = _SCALAR["store_end"]
STORE_END_RANK = _SCALAR["store_end_rank"]
STORE_END_SELECT = _SCALAR["store_end_select"]
VALUES = _SCALAR["values"]


class View(NamedTuple):
    """Addresses of the file and of the numbers that say where things stand in it."""

    file: int
    levels: int  # int64 [D, len(PARAMETERS)], offsets in elements of the file
    scalars: int  # int64 [len(SCALARS)]


class Mapped:
    """The arrays behind a view, which whoever passes the view to a kernel must hold."""

    def __init__(
        self,
        file: npt.NDArray[np.uint8],
        header: Header,
        parameters: npt.NDArray[np.int64],
        offsets: dict[str, int],
    ) -> None:
        """Of a mapped file, the `parameters` of its levels, and its sections' offsets in bytes.

        O(levels); the payload is not read.
        """
        at = {name: offset // SECTION[name].dtype.itemsize for name, offset in offsets.items()}
        levels = np.ascontiguousarray(parameters, np.int64).copy()
        for name in LEVEL_SECTIONS:
            levels[:, PARAMETER[f"{name}_offset"]] += at[name]
        numbers = {"levels": header.levels, **counts(header), **at}
        scalars = np.array([numbers[name] for name in SCALARS], np.int64)
        self._arrays = file, levels, scalars
        self.view = View(*(array.ctypes.data for array in self._arrays))


@inner
def level(view: View, row: int, parameter: int) -> int:
    """A parameter of the level in row `row` of the level table (from 0)."""
    return i64(view.levels, row * _COLUMNS + parameter)


@inner
def scalar(view: View, index: int) -> int:
    """One of SCALARS."""
    return i64(view.scalars, index)
