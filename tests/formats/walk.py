"""All keywords of an artifact, read by the rules of docs/format.md, one node at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flashtrie.formats import bits
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import COLUMN, PARAMETER, Coding

Keyword = tuple[tuple[int, ...], int | None]


def keywords(artifact: Artifact) -> list[Keyword]:
    """The keywords and values by key id, found by walking down from the root."""
    found = dict(_Walk(artifact).below_root())
    assert sorted(found) == list(range(artifact.header.keywords))
    alphabet = artifact.sections["alphabet"]
    header = artifact.header
    values: list[int | None] = [None] * header.keywords
    if header.values:
        packed = bits.unpack(artifact.sections["values"], header.value_bits, header.values)
        values = [header.value_min + int(value) for value in packed]
    return [
        (tuple(alphabet[list(ranks)].tolist()), values[key]) for key, ranks in sorted(found.items())
    ]


class _Walk:
    def __init__(self, artifact: Artifact) -> None:
        self.sections = artifact.sections
        self.parameters = artifact.parameters
        self.header = artifact.header
        self.labels = [
            self.decode("label", d, int(row[0])) for d, row in enumerate(artifact.parameters)
        ]
        header = artifact.header
        low, flag, high = (self.sections[f"store_{name}"] for name in ("low", "flag", "high"))
        self.store = bits.decode(low, flag, high, header.store_tokens, header.store)
        self.ends = bits.unpack_bits(self.sections["store_end"], header.store_tokens)

    def below_root(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        ranks = np.flatnonzero(bits.unpack_bits(self.sections["root"], self.header.alphabet_size))
        for node, rank in enumerate(ranks.tolist()):
            assert bits.rank(self.sections["root"], self.sections["root_rank"], rank) == node
            yield from self.below(0, node, (rank,))

    def below(
        self, d: int, node: int, prefix: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        row = self.parameters[d]
        inner_before = self.rank("inner", d, node)
        inner = self.bit("inner", d, node)
        key = int(row[PARAMETER["first_key"]]) + node - inner_before
        key += self.rank("terminal", d, inner_before)
        if not inner:
            yield key, prefix + self.tail(d, node - inner_before)
            return
        if self.bit("terminal", d, inner_before):
            yield key, prefix
        first = self.select(d, inner_before)
        last = self.select(d, inner_before + 1)
        for child in range(first, last):
            yield from self.below(d + 1, child, (*prefix, int(self.labels[d + 1][child])))

    def tail(self, d: int, leaf: int) -> tuple[int, ...]:
        row = self.parameters[d]
        if not self.bit("tail", d, leaf):
            return ()
        number = self.rank("tail", d, leaf)
        long = self.rank("tail_long", d, number)
        tails, long_tails = (int(row[COLUMN[name]]) for name in ("tails", "long_tails"))
        if not self.bit("tail_long", d, number):
            return (int(self.decode("tail_token", d, tails - long_tails)[number - long]),)
        if self.header.tails == "indexed":
            begin = int(self.decode("tail_index", d, long_tails)[long])
        else:
            before = int(row[PARAMETER["first_long_tail"]]) + long
            end, ranks, selects = (self.sections[f"store_end{n}"] for n in ("", "_rank", "_select"))
            begin = bits.select(end, ranks, selects, before - 1) + 1 if before else 0
        last = begin + int(self.ends[begin:].argmax())
        return tuple(self.store[begin : last + 1].tolist())

    def part(self, name: str, d: int) -> np.ndarray:
        return self.sections[name][self.parameters[d, PARAMETER[f"{name}_offset"]] :]

    def bit(self, name: str, d: int, i: int) -> bool:
        return bool(int(self.part(name, d)[i // 64]) >> (i % 64) & 1)

    def rank(self, name: str, d: int, i: int) -> int:
        return bits.rank(self.part(name, d), self.part(f"{name}_rank", d), i)

    def select(self, d: int, j: int) -> int:
        if j == self.parameters[d, COLUMN["inner"]]:
            return int(self.parameters[d + 1, COLUMN["nodes"]])
        louds, ranks, selects = (self.part(f"louds{n}", d) for n in ("", "_rank", "_select"))
        return bits.select(louds, ranks, selects, j)

    def decode(self, prefix: str, d: int, n: int) -> np.ndarray:
        first = COLUMN[f"{prefix}_low_bits"]
        coding = Coding(*(int(value) for value in self.parameters[d, first : first + 3]))
        if not coding.low_bits:
            return np.zeros(n, np.uint64)
        low, flag, high = (self.part(f"{prefix}_{name}", d) for name in ("low", "flag", "high"))
        return bits.decode(low, flag, high, n, coding)
