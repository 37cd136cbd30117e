"""The reference key sets that sizes and speeds are quoted for: query, wide and narrow.

Token ids follow a power law over a vocabulary of 2.2 million. In `query` the tokens of a keyword
are independent, 1 to 10 of them; in `wide` and `narrow` a token has 20,000 or 50 possible
successors, and a keyword 1 to 8 tokens. Rows come in random order with the duplicates that
the draws happen to give. The same call gives the same rows everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

VOCAB_SIZE = 2_200_000
ROWS = {"query": 2_000_000, "wide": 10_000_000, "narrow": 20_000_000}
SEED = 0

_BATCH_ROWS = 1_000_000
_SHARDS = 4
_SUCCESSORS = {"wide": 20_000, "narrow": 50}
# Percent of keywords of 1, 2, ... tokens.
_LENGTHS = {
    "query": [2, 10, 20, 22, 17, 12, 8, 5, 3, 1],
    "wide": [3, 14, 24, 24, 16, 10, 6, 3],
    "narrow": [3, 14, 24, 24, 16, 10, 6, 3],
}

I64 = npt.NDArray[np.int64]


def write_key_set(kind: str, folder: Path) -> None:
    """Write the shards of a key set, unless they are there. About 2 s a million rows."""
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    element = pa.field("element", pa.uint32(), nullable=False)
    schema = pa.schema([pa.field("tokens", pa.list_(element), nullable=False)])
    rng = np.random.default_rng(SEED)
    paths = [partial / f"part-{shard:05d}.parquet" for shard in range(_SHARDS)]
    writers = [pq.ParquetWriter(path, schema, compression="zstd") for path in paths]
    for batch, first in enumerate(range(0, ROWS[kind], _BATCH_ROWS)):
        lengths, tokens = _draw(kind, min(_BATCH_ROWS, ROWS[kind] - first), rng)
        offsets = np.cumsum(np.append(0, lengths)).astype(np.int32)
        inside = np.arange(tokens.shape[1]) < lengths[:, None]
        flat = pa.array(tokens[inside].astype(np.uint32))
        column: Any = pa.ListArray.from_arrays(pa.array(offsets), flat)
        table = pa.table([column.cast(schema.field(0).type)], schema=schema)
        writers[batch % _SHARDS].write_table(table)
    for writer in writers:
        writer.close()
    partial.rename(folder)


def _draw(kind: str, rows: int, rng: np.random.Generator) -> tuple[I64, I64]:
    """(lengths [rows], tokens [rows, longest])."""
    shares = np.array(_LENGTHS[kind])
    lengths = rng.choice(np.arange(1, len(shares) + 1), size=rows, p=shares / 100)
    if kind == "query":
        return lengths, _power_law(rng.random((rows, len(shares))), VOCAB_SIZE, 1.05)
    tokens = np.zeros((rows, len(shares)), np.int64)
    tokens[:, 0] = _power_law(rng.random(rows), VOCAB_SIZE, 1.1)
    for step in range(1, len(shares)):
        successor = _power_law(rng.random(rows), _SUCCESSORS[kind], 1.0)
        uniform = (_hash(tokens[:, step - 1], successor) >> np.uint64(11)) / 2.0**53
        tokens[:, step] = _power_law(uniform, VOCAB_SIZE, 1.1)
    return lengths, tokens


def _power_law(uniform: npt.NDArray[np.float64], size: int, exponent: float) -> I64:
    """Draws from a power law over 0 to size - 1, by its inverse distribution function."""
    if exponent == 1:
        drawn = size**uniform
    else:
        power = 1 - exponent
        drawn = ((size**power - 1) * uniform + 1) ** (1 / power)
    return np.minimum(drawn.astype(np.int64), size) - 1


def _hash(token: I64, successor: I64) -> npt.NDArray[np.uint64]:
    first = token.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    second = successor.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = first ^ (second + np.uint64(0x165667B19E3779F9))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))
