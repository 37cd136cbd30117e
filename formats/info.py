"""What an artifact holds and weighs, by its header alone."""

from __future__ import annotations

from typing import Any

from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import (
    COLUMN,
    LEVEL_COLUMNS,
    LEVEL_SECTIONS,
    SECTION,
    SECTIONS,
    VERSION,
    Header,
    level_sizes,
    padded_bytes,
    sizes,
)


def bits_per_keyword(header: Header, size: int) -> float:
    """Bits of a file of `size` bytes for each keyword, without alphabet and values."""
    lengths = sizes(header)
    apart = sum(padded_bytes(name, lengths[name]) for name in ("alphabet", "values"))
    return (size - apart) * 8 / header.keywords


def describe(artifact: Artifact) -> dict[str, Any]:
    """Counts, bytes and bits per keyword of the whole, of each section and of each level.

    O(levels); no payload is read. `sections` maps names to {bytes, bits_per_keyword}; `levels` is a
    list of the columns of the level table with {level, keywords, bytes, bits_per_keyword}.
    """
    header = artifact.header
    lengths = sizes(header)
    weights = {s.name: padded_bytes(s.name, lengths[s.name]) for s in SECTIONS}
    return {
        "format_version": VERSION,
        "keywords": header.keywords,
        "nodes": header.nodes,
        "nodes_per_keyword": header.nodes / header.keywords,
        "alphabet": header.alphabet_size,
        "vocab_size": header.vocab_size,
        "max_length": header.max_length,
        "bytes": artifact.bytes,
        "bits_per_keyword": bits_per_keyword(header, artifact.bytes),
        "tails": header.tails,
        "values": bool(header.values),
        "digest": header.digest,
        "tags": dict(header.tags),
        "sections": {
            name: {"bytes": size, "bits_per_keyword": size * 8 / header.keywords}
            for name, size in weights.items()
        },
        "levels": [_level(header, d) for d in range(header.levels)],
    }


def _level(header: Header, d: int) -> dict[str, Any]:
    table = header.level_table
    row = {name: int(table[d, COLUMN[name]]) for name in LEVEL_COLUMNS}
    next_nodes = int(table[d + 1, COLUMN["nodes"]]) if d + 1 < header.levels else 0
    parts = level_sizes(table[d], next_nodes, d == 0)
    size = sum(parts[name] * SECTION[name].dtype.itemsize for name in LEVEL_SECTIONS)
    return {
        "level": d + 1,
        "keywords": row["nodes"] - row["inner"] + row["terminals"],
        "bytes": size,
        "bits_per_keyword": size * 8 / header.keywords,
        **row,
    }
