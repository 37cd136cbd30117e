"""A wrong artifact of a right one and a seed: the same in any process and on any machine.

What is changed: bytes of the header, fields of it, entries of sections, counts that still fit each
other (and sections of the sizes that follow), rows of the level table, bytes of any section, the
length of the file. Most are sealed: digests, checksums and header are made right again, so that
only what they protect is wrong.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flashtrie.formats import header as headers
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.relations import contradiction
from flashtrie.formats.schema import (
    COLUMN,
    LEVEL_COLUMNS,
    SECTION,
    SECTIONS,
    Coding,
    Header,
    padded_bytes,
    sizes,
)
from tests.formats.damage import Document, plain, resealed, spell, split

_METADATA = "__metadata__"
_MOST_BYTES = 1 << 21  # of a file that is laid out anew
_TRIES = 30
_NO_CHECKSUMS = {section.name: "0" * 32 for section in SECTIONS}


class Base:
    """A right artifact in memory, taken apart."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        with open_artifact(path) as artifact:
            self.header = artifact.header
            self.header_bytes = artifact.header_bytes
            self.offsets = artifact.offsets
            self.lengths = artifact.lengths
        self.ends = {
            name: offset + padded_bytes(name, self.lengths[name])
            for name, offset in self.offsets.items()
        }
        self.filled = [name for name, length in self.lengths.items() if length]


class Mutant(NamedTuple):
    """The bytes of a file, what was done to it, and whether its checksums are right."""

    data: bytes
    change: str
    sealed: bool


def mutant(base: Base, seed: int) -> Mutant:
    """The mutant of a base and a seed."""
    draw = random.Random(seed)
    (make,) = draw.choices(list(_KINDS), list(_KINDS.values()))
    return make(base, draw)


# The header.


def _header_bytes(base: Base, draw: random.Random) -> Mutant:
    data = bytearray(base.data)
    if draw.random() < 0.2:
        length = draw.choice([0, 1, 8, 56, 2**20, 2**31, 2**32, 2**63, 2**64 - 1])
        data[:8] = length.to_bytes(8, "little")
        return Mutant(bytes(data), f"header length {length}", False)
    places = [draw.randrange(base.header_bytes) for _ in range(draw.choice([1, 1, 2, 5]))]
    for place in places:
        data[place] = draw.choice([data[place] ^ 1 << draw.randrange(8), draw.randrange(256), 0x22])
    return Mutant(bytes(data), f"header bytes {places}", False)


def _metadata(base: Base, draw: random.Random) -> Mutant:
    document, payload = split(base.data)
    metadata = document[_METADATA]
    changes = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        keys = sorted(metadata)
        counts = [key for key in keys if not key.startswith(("length.", "checksum.", "tag."))]
        key = draw.choice(counts if draw.random() < 0.6 else keys)
        if draw.random() < 0.07:
            del metadata[key]
            changes.append(f"no {key}")
            continue
        if draw.random() < 0.03:
            key += draw.choice(["x", " ", "\u00e9", "\ud800"])
        metadata[key] = _text(draw, str(metadata.get(key, "")), metadata)
        changes.append(f"{key}={metadata[key]!r}")
    return _with_header(document, payload, draw, ", ".join(changes))


def _text(draw: random.Random, old: str, metadata: Document) -> Any:
    """Another value of a metadata entry."""
    kind = draw.random()
    if kind < 0.1:
        return metadata[draw.choice(sorted(metadata))]
    if kind < 0.2:
        others = ["", "-1", "-0", "00", "1.0", "NaN", "x" * 32, "implicit", "indexed", "\ud800"]
        return draw.choice([*others, None, 7, [], {}, old + " ", "9" * 25])
    if old.lstrip("-").isdigit():
        return str(_number(draw, int(old)))
    if len(old) == 32:
        return f"{draw.getrandbits(128):032x}"
    return draw.choice(["implicit", "indexed", old[::-1], old + old])


def _number(draw: random.Random, old: int) -> int:
    """Another number: near, extreme, or any."""
    extremes = [
        0,
        1,
        2,
        511,
        512,
        513,
        4096,
        4097,
        2**16,
        2**31,
        2**32 - 1,
        2**32,
        2**62,
        2**63 - 1,
    ]
    near = [old - 1, old + 1, old + 64, old * 2, old // 2, old - 64, old + 512]
    return draw.choice(
        [draw.choice(near), draw.choice(extremes), draw.randrange(2 * abs(old) + 2), -old - 1]
    )


def _with_header(document: Document, payload: bytes, draw: random.Random, change: str) -> Mutant:
    """With the digest of the changed header, or for a quarter with the old one."""
    if draw.random() < 0.75:
        return Mutant(spell(document) + payload, f"header: {change}", True)
    return Mutant(plain(document) + payload, f"header, not its digest: {change}", False)


def _entry(base: Base, draw: random.Random) -> Mutant:
    """What the header says of a section: overlaps, gaps, other types."""
    document, payload = split(base.data)
    names = sorted(name for name in document if name != _METADATA)
    name, other = draw.choice(names), draw.choice(names)
    entry = document[name]
    what = draw.randrange(7)
    if what == 0:
        entry["dtype"] = draw.choice(["U8", "U32", "U64", "I64", "F64", "", None, 8])
    elif what == 1:
        entry["shape"] = draw.choice([[], [0], [-1], [2**63], [1, 8], None, [1e300], "8", [[]]])
    elif what == 2:
        entry["data_offsets"] = list(document[other]["data_offsets"])
    elif what == 3:
        first, last = entry["data_offsets"]
        step = draw.choice([-64, -8, -1, 1, 64, 2**63, 2**64])
        entry["data_offsets"] = draw.choice([[first + step, last + step], [first, last + step]])
    elif what == 4:
        document[name], document[other] = document[other], document[name]
    elif what == 5:
        document[draw.choice(["more", other + " ", ""])] = dict(entry)
    else:
        document[name] = draw.choice([None, [], {}, 1.5, "x", {"dtype": "U8"}, [[[[]]]]])
    return _with_header(document, payload, draw, f"entry of {name}")


# Counts that fit each other.


def _counts(base: Base, draw: random.Random) -> Mutant:
    """Other counts in header and level table, with sections of the sizes that follow from them.

    Most of them fit each other, so that the file opens.
    """
    fitting = draw.random() < 0.85
    for _ in range(_TRIES):
        table = base.header.level_table.copy()
        fields: dict[str, Any] = {}
        changes = [
            draw.choice([_change_row, _change_row, _change_levels, _change_field])(
                base.header, table, fields, draw
            )
            for _ in range(draw.choice([1, 1, 2, 3]))
        ]
        table = fields.pop("level_table", table)
        header = dataclasses.replace(base.header, level_table=table, **fields)
        header = _fitting(header, draw) if fitting else _with_totals(header)
        lengths = sizes(header).values()
        fits = contradiction(header) is None or not fitting
        if fits and min(lengths) >= 0 and sum(lengths) * 8 < _MOST_BYTES:
            data = _laid_out(base, header, draw)
            if data != base.data:
                return Mutant(data, f"counts: {', '.join(changes)}", True)
    return _metadata(base, draw)


def _change_row(header: Header, table: Any, fields: Any, draw: random.Random) -> str:
    d = draw.randrange(len(table))
    column = draw.randrange(len(LEVEL_COLUMNS))
    old = int(table[d, column])
    new = draw.choice([old - 1, old + 1, old + 2, old * 2, old // 2, draw.randrange(2 * old + 3)])
    table[d, column] = max(new, 0)
    return f"level {d + 1} {LEVEL_COLUMNS[column]} {old} -> {new}"


def _change_levels(header: Header, table: Any, fields: Any, draw: random.Random) -> str:
    d = draw.randrange(len(table))
    if draw.random() < 0.5 and len(table) > 1:
        fields["level_table"] = np.delete(table, d, axis=0)
        return f"no level {d + 1}"
    fields["level_table"] = np.insert(table, d, table[d], axis=0)
    return f"level {d + 1} twice"


def _change_field(header: Header, table: Any, fields: Any, draw: random.Random) -> str:
    name = draw.choice(
        ["alphabet_size", "vocab_size", "max_length", "store_tokens", "store_tails", "tails"]
        + ["value_min", "value_bits", "values", "store"]
    )
    if name == "tails":
        fields[name] = {"implicit": "indexed", "indexed": "implicit"}[header.tails]
    elif name == "store":
        low, high, highs = header.store
        step = draw.choice([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
        fields[name] = Coding(low + step[0], high + step[1], highs + step[2])
    elif name == "values":
        fields[name] = 0 if header.values else header.keywords
    elif name == "value_bits":
        fields[name] = draw.choice([0, 1, 31, 57, 58, 63, 64])
    else:
        old = getattr(header, name)
        near = [old - 1, old + 1, old + 64, old // 2, old * 2, 4096, 2**32 - 1]
        fields[name] = draw.choice([*near, draw.randrange(2 * abs(old) + 2)])
    return f"{name} {getattr(header, name)} -> {fields[name]}"


def _with_totals(header: Header) -> Header:
    """With the sums over levels that the header repeats, and nothing else made to fit."""
    nodes, inner, terminals = header.level_table.T[:3]
    keywords = int((nodes - inner + terminals).sum())
    values = keywords if header.values else 0
    return dataclasses.replace(header, nodes=int(nodes.sum()), keywords=keywords, values=values)


def _fitting(header: Header, draw: random.Random) -> Header:
    """With the totals and codings that follow from the rest of the counts."""
    table = header.level_table
    column = {name: table[:, index] for name, index in COLUMN.items()}
    np.minimum(column["inner"], column["nodes"], out=column["inner"])
    np.minimum(column["terminals"], column["inner"], out=column["terminals"])
    np.minimum(column["tails"], column["nodes"] - column["inner"], out=column["tails"])
    np.minimum(column["long_tails"], column["tails"], out=column["long_tails"])
    table[-1, COLUMN["inner"]] = table[-1, COLUMN["terminals"]] = 0
    counts = {
        "label": np.where(np.arange(len(table)) > 0, column["nodes"], 0),
        "tail_token": column["tails"] - column["long_tails"],
        "tail_index": column["long_tails"] * (header.tails == "indexed"),
    }
    for name, count in counts.items():
        first = COLUMN[f"{name}_low_bits"]
        table[count == 0, first : first + 3] = 0
        table[(count > 0) & (table[:, first] == 0), first] = draw.randrange(4, 17)
        table[(table[:, first + 1] == 0) | (table[:, first + 2] == 0), first + 1 : first + 3] = 0
    long_tails = int(column["long_tails"].sum())
    stored = header.store_tails
    stored = long_tails if header.tails == "implicit" else min(stored, long_tails)
    tokens, store = header.store_tokens, header.store
    if not stored:
        tokens, store = 0, Coding(0, 0, 0)
    elif not store.low_bits:
        store = Coding(draw.randrange(4, 17), 0, 0)
    if not store.high_bits or not store.highs:
        store = store._replace(high_bits=0, highs=0)
    keywords = int((column["nodes"] - column["inner"] + column["terminals"]).sum())
    valued = bool(header.values)
    return dataclasses.replace(
        header,
        nodes=int(column["nodes"].sum()),
        keywords=keywords,
        store_tails=stored,
        store_tokens=tokens,
        store=store,
        values=keywords if valued else 0,
        value_min=max(min(header.value_min, 2**63 - 1), -(2**63)) if valued else 0,
        value_bits=header.value_bits if valued else 0,
    )


def _laid_out(base: Base, header: Header, draw: random.Random) -> bytes:
    """The file of another header: sections of its sizes, with what was in them before."""
    lengths = sizes(header)
    start = headers.encode(header, _NO_CHECKSUMS)
    fill = draw.choice(["zeros", "ones", "random", "again"])
    parts = [start]
    for section in SECTIONS:
        name = section.name
        size = padded_bytes(name, lengths[name])
        old = base.data[base.offsets[name] : base.ends[name]]
        if name == "level_table":
            old = header.level_table.astype("<i8").tobytes()
            old += bytes(size - len(old))
        elif name == "chunk_digests":
            old = bytes(size)
        elif fill == "again" and old:
            old *= -(-size // len(old))
        elif fill == "random":
            old += draw.randbytes(max(size - len(old), 0))
        elif fill == "ones":
            old = old.ljust(size, b"\xff")
        data = bytearray(old[:size].ljust(size, b"\0"))
        used = lengths[name] * section.dtype.itemsize
        data[used:] = bytes(size - used)
        parts.append(bytes(data))
    return resealed(b"".join(parts))


def _level_table(base: Base, draw: random.Random) -> Mutant:
    """Cells of the level table, whatever else follows from them."""
    data = bytearray(base.data)
    changes = []
    for _ in range(draw.choice([1, 1, 2, 4])):
        place = draw.randrange(base.header.level_table.size)
        at = base.offsets["level_table"] + 8 * place
        old = int.from_bytes(data[at : at + 8], "little", signed=True)
        new = max(min(_number(draw, old), 2**63 - 1), -(2**63))
        data[at : at + 8] = new.to_bytes(8, "little", signed=True)
        d, column = divmod(place, len(LEVEL_COLUMNS))
        changes.append(f"level {d + 1} {LEVEL_COLUMNS[column]} {old} -> {new}")
    return _sealed(bytes(data), draw, f"level table: {', '.join(changes)}", 0.85)


# The payload.


def _payload(base: Base, draw: random.Random) -> Mutant:
    data = bytearray(base.data)
    names = [name for name in base.filled if name not in ("level_table", "chunk_digests")]
    changes = []
    for _ in range(draw.choice([1, 1, 1, 2, 4, 12])):
        name = draw.choice(names)
        change = draw.choice(_OPERATIONS)
        change(base, data, name, draw)
        changes.append(f"{name} {change.__name__.strip('_')}")
    return _sealed(bytes(data), draw, ", ".join(changes), 0.8)


def _digests(base: Base, draw: random.Random) -> Mutant:
    data = bytearray(base.data)
    draw.choice([_flip, _fill, _swap])(base, data, "chunk_digests", draw)
    return Mutant(bytes(data), "chunk_digests", False)


def _sealed(data: bytes, draw: random.Random, change: str, share: float) -> Mutant:
    if draw.random() < share:
        return Mutant(resealed(data), change, True)
    return Mutant(data, f"{change}, not sealed", False)


def _range(base: Base, name: str, draw: random.Random) -> tuple[int, int]:
    """A range of a section's bytes, padding included; small ones and the whole are likelier."""
    first, last = base.offsets[name], base.ends[name]
    if draw.random() < 0.2:
        return first, last
    start = draw.randrange(first, last)
    return start, min(start + draw.choice([1, 8, 64, last - first]), last)


def _flip(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 2, 8])):
        data[draw.randrange(base.offsets[name], base.ends[name])] ^= 1 << draw.randrange(8)


def _fill(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    start, stop = _range(base, name, draw)
    size = stop - start
    data[start:stop] = draw.choice([bytes(size), b"\xff" * size, draw.randbytes(size)])


def _swap(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    first, last = base.offsets[name], base.ends[name]
    size = draw.choice([4, 8, 64])
    a, b = (draw.randrange(first, last - size + 1) for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def _copy(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    """From any place of the file."""
    start, stop = _range(base, name, draw)
    source = draw.randrange(len(data) - (stop - start) + 1)
    data[start:stop] = data[source : source + stop - start]


def _element(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    """An element becomes extreme, or one more or less than it was or than its neighbour is."""
    size = SECTION[name].dtype.itemsize
    most = 256**size - 1
    for _ in range(draw.choice([1, 1, 3])):
        element = draw.randrange(base.lengths[name])
        at = base.offsets[name] + element * size
        beside = base.offsets[name] + max(element - 1, 0) * size
        old, other = (int.from_bytes(data[p : p + size], "little") for p in (at, beside))
        near = [old - 1, old + 1, old + 512, old * 2, other, other + 1, other - 1]
        extremes = [0, 1, most, most >> 1, (most >> 1) + 1, base.header.keywords]
        new = draw.choice([*near, *extremes, draw.getrandbits(8 * size)]) & most
        data[at : at + size] = new.to_bytes(size, "little")


def _shift(base: Base, data: bytearray, name: str, draw: random.Random) -> None:
    """All elements move by one, or stand the other way round."""
    size = SECTION[name].dtype.itemsize
    first = base.offsets[name]
    last = first + base.lengths[name] * size
    part = bytes(data[first:last])
    elements = [part[i : i + size] for i in range(0, len(part), size)]
    data[first:last] = draw.choice(
        [part[size:] + part[:size], part[-size:] + part[:-size], b"".join(reversed(elements))]
    )


_OPERATIONS = [_flip, _flip, _fill, _swap, _copy, _element, _element, _shift]


def _length(base: Base, draw: random.Random) -> Mutant:
    """The file is cut, or grows."""
    data = base.data
    if draw.random() < 0.3:
        more = draw.choice([b"\0", bytes(64), draw.randbytes(64), data[-64:], data])
        return Mutant(data + more, f"grown by {len(more)} bytes", False)
    bounds = [*base.offsets.values(), *base.ends.values(), base.header_bytes, 8, len(data)]
    at = draw.choice(
        [draw.choice(bounds) + draw.choice([-64, -1, 0, 1]), draw.randrange(len(data))]
    )
    return Mutant(data[: max(at, 0)], f"cut to {max(at, 0)} bytes", False)


_KINDS: dict[Callable[[Base, random.Random], Mutant], int] = {
    _header_bytes: 4,
    _metadata: 9,
    _entry: 4,
    _counts: 22,
    _level_table: 7,
    _payload: 48,
    _digests: 2,
    _length: 4,
}
