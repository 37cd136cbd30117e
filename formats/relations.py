"""What must hold between the counts of a header, whatever the payload. O(levels)."""

from __future__ import annotations

from collections.abc import Iterator

from flashtrie.formats.schema import (
    COLUMN,
    LEVEL_COLUMNS,
    MAX_LENGTH,
    MAX_LEVEL_NODES,
    MAX_LOW_BITS,
    MAX_TOKEN,
    MIN_LOW_BITS,
    Coding,
    Header,
)

_MAX_HIGH_BITS = 60
_VALUE_BITS = 64


def contradiction(header: Header) -> str | None:
    """The first relation that does not hold, in words, or None. O(levels).

    Where it is None, all counts are in their ranges and `schema.sizes` is what the file must have.
    """
    return next(_contradictions(header), None)


def _contradictions(header: Header) -> Iterator[str]:
    table = header.level_table
    if table.ndim != 2 or table.shape[1] != len(LEVEL_COLUMNS):
        yield f"the level table has shape {table.shape}"
        return
    if (table < 0).any():
        yield "the level table has a negative number"
        return
    if not 1 <= header.levels <= header.max_length <= MAX_LENGTH:
        yield (
            f"{header.levels} levels with max_length {header.max_length}: "
            f"1 <= levels <= max_length <= {MAX_LENGTH} is right"
        )
    if not 1 <= header.alphabet_size <= header.vocab_size <= MAX_TOKEN + 1:
        yield (
            f"alphabet_size {header.alphabet_size} with vocab_size {header.vocab_size}: "
            f"1 <= alphabet_size <= vocab_size <= {MAX_TOKEN + 1} is right"
        )
    # Python integers from here on: sums and products cannot wrap.
    rows = table.tolist()
    for d, row in enumerate(rows, 1):
        below = rows[d][0] if d < len(rows) else 0
        for problem in _level(header, d, row, below):
            yield f"level {d}: {problem}"
    yield from _totals(header, rows)


def _level(header: Header, d: int, row: list[int], below: int) -> Iterator[str]:
    nodes, inner, terminals, tails, long_tails = row[:5]
    if not 1 <= nodes <= MAX_LEVEL_NODES:
        yield f"{nodes} nodes; there are 1 to {MAX_LEVEL_NODES}"
    if not (1 if below else 0) <= inner <= min(nodes, below):
        yield f"{inner} inner nodes of {nodes}, and {below} nodes on the next level"
    if below > inner * header.alphabet_size:
        yield f"{inner} inner nodes cannot have {below} children with {header.alphabet_size} tokens"
    if terminals > inner:
        yield f"{terminals} terminals among {inner} inner nodes"
    if not long_tails <= tails <= nodes - inner:
        yield f"{long_tails} long tails of {tails} tails on {nodes - inner} leaves"
    if d == 1 and nodes > header.alphabet_size:
        yield f"{nodes} nodes with {header.alphabet_size} tokens"
    if tails and d + (2 if long_tails else 1) > header.max_length:
        yield f"tails here pass max_length {header.max_length}"
    indexed = header.tails == "indexed"
    for name, count, limit in (
        ("label", nodes if d > 1 else 0, header.alphabet_size),
        ("tail_token", tails - long_tails, header.alphabet_size),
        ("tail_index", long_tails if indexed else 0, header.store_tokens),
    ):
        first = COLUMN[f"{name}_low_bits"]
        if problem := _coding(count, limit, Coding(*row[first : first + 3])):
            yield f"{name}: {problem}"


def _coding(count: int, limit: int, coding: Coding) -> str | None:
    """What is wrong with the coding of `count` integers below `limit`, if anything."""
    low, high, highs = coding
    text = f"{count} elements with low_bits {low}, high_bits {high}, highs {highs}"
    if count == 0:
        return text if any(coding) else None
    if not MIN_LOW_BITS <= low <= MAX_LOW_BITS or high > _MAX_HIGH_BITS or highs > count:
        return text
    if (high == 0) != (highs == 0):
        return text
    if high and low + high > (limit - 1).bit_length():
        return f"{text}, which are below {limit}"
    return None


def _totals(header: Header, rows: list[list[int]]) -> Iterator[str]:
    nodes = sum(row[0] for row in rows)
    if nodes != header.nodes:
        yield f"{header.nodes} nodes, and the levels have {nodes}"
    keywords = sum(row[0] - row[1] + row[2] for row in rows)
    if keywords != header.keywords:
        yield f"{header.keywords} keywords, and the levels have {keywords}"
    long_tails = sum(row[4] for row in rows)
    stored, tokens = header.store_tails, header.store_tokens
    if header.tails == "implicit" and stored != long_tails:
        yield f"{stored} tails in the store, and the levels have {long_tails} long tails"
    if not min(long_tails, 1) <= stored <= long_tails:
        yield f"{stored} tails in the store for {long_tails} long tails"
    if not 2 * stored <= tokens <= (header.max_length - 1) * stored:
        yield f"{tokens} tokens in the store for {stored} tails"
    if problem := _coding(tokens, header.alphabet_size, header.store):
        yield f"store: {problem}"
    if header.values not in (0, header.keywords):
        yield f"{header.values} values for {header.keywords} keywords"
    if header.value_bits > _VALUE_BITS:
        yield f"value_bits {header.value_bits}; {_VALUE_BITS} is the most"
    if header.values == 0 and (header.value_min or header.value_bits):
        yield "value_min or value_bits without values"
