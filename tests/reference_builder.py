"""The artifact of a list of keywords, built with dicts and sorted lists: docs/format.md literally.

The oracle of the builder, whose files must be byte for byte these.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from flashtrie.formats import bits
from flashtrie.formats.schema import (
    COLUMN,
    LEVEL_COLUMNS,
    LEVEL_SECTIONS,
    SECTION,
    SECTIONS,
    Coding,
    Header,
    padded_bytes,
)
from flashtrie.formats.writer import ArtifactWriter

Row = tuple[Sequence[int], int | None]
Ranks = tuple[int, ...]
Arrays = dict[str, npt.NDArray[np.generic]]


def reference_artifact(
    path: str | os.PathLike[str],
    keywords: Sequence[Row],
    low_bits: int | None = None,
    tails: str = "auto",
    vocab_size: int | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write the artifact of rows (tokens, value), duplicates included. All values or none."""
    alphabet = _alphabet(keywords)
    rank = {token: r for r, token in enumerate(alphabet)}
    values: dict[Ranks, int | None] = {}
    for tokens, value in keywords:
        key = tuple(rank[int(token)] for token in tokens)
        if key not in values:
            values[key] = value
        elif value is not None:
            before = values[key]
            assert before is not None
            values[key] = min(before, value)
    trie = _Trie(sorted(values))
    kinds = {kind: trie.tail_arrays(kind, low_bits) for kind in ("implicit", "indexed")}
    if tails == "auto":
        # The first of equals: implicit.
        tails = min(kinds, key=lambda kind: _padded(kinds[kind][0]))
    arrays, coding, store, store_tokens, store_tails = kinds[tails]
    level_arrays, table = trie.level_arrays(low_bits)
    for name, columns in coding.items():
        first = COLUMN[f"{name}_low_bits"]
        table[:, first : first + 3] = columns
    root = np.zeros(len(alphabet), np.bool_)
    root[[prefix[0] for prefix in trie.levels[0]]] = True
    root_words = bits.pack_bits(root)
    of_key = [values[key] for key in trie.keys_in_order()]
    value_array = np.array([0 if v is None else v for v in of_key], np.int64)
    has_values = of_key[0] is not None
    value_min = int(value_array.min()) if has_values else 0
    differences = (value_array - value_min).astype(np.uint64)
    value_bits = int(differences.max()).bit_length() if has_values else 0
    header = Header(
        keywords=len(values),
        nodes=int(table[:, 0].sum()),
        alphabet_size=len(alphabet),
        vocab_size=max(alphabet) + 1 if vocab_size is None else vocab_size,
        max_length=max(map(len, values)),
        tails=tails,
        store_tokens=store_tokens,
        store_tails=store_tails,
        store=store,
        values=len(values) if has_values else 0,
        value_min=value_min,
        value_bits=value_bits,
        level_table=table,
        tags=dict(tags or {}),
    )
    arrays = {
        "alphabet": np.array(alphabet, np.uint32),
        "root": root_words,
        "root_rank": bits.rank_directory(root_words, len(alphabet)),
        **level_arrays,
        **arrays,
        "values": bits.pack(differences, value_bits),
    }
    with ArtifactWriter(path, header) as writer:
        for section in SECTIONS:
            if section.name not in ("level_table", "chunk_digests"):
                array = arrays[section.name].astype(section.dtype)
                assert len(array) == writer.lengths[section.name], section.name
                writer.write(section.name, 0, array)
        writer.commit()


def _alphabet(keywords: Sequence[Row]) -> list[int]:
    """Tokens by falling frequency over all rows, ties by id."""
    counts = Counter(int(token) for tokens, _ in keywords for token in tokens)
    return sorted(counts, key=lambda token: (-counts[token], token))


class _Trie:
    """The levels of sorted distinct rank sequences: prefixes that are nodes, in order."""

    def __init__(self, keys: list[Ranks]) -> None:
        self.keys = set(keys)
        under = Counter(key[:d] for key in keys for d in range(1, len(key) + 1))
        self.inner = {prefix for prefix, count in under.items() if count > 1}
        # A node is shared, or its parent is, or it is on level 1.
        nodes = [p for p in under if len(p) == 1 or p[:-1] in self.inner]
        self.levels: list[list[Ranks]] = [[] for _ in range(max(map(len, nodes)))]
        for prefix in sorted(nodes):
            self.levels[len(prefix) - 1].append(prefix)
        keyword_of = {key[:d]: key for key in keys for d in range(1, len(key) + 1)}
        # The tail of each leaf by level, in order.
        self.tails = [
            [keyword_of[p][len(p) :] for p in level if p not in self.inner] for level in self.levels
        ]

    def keys_in_order(self) -> list[Ranks]:
        """The keywords by key id."""
        result = []
        for level, tails in zip(self.levels, self.tails, strict=True):
            leaf = iter(tails)
            for prefix in level:
                if prefix not in self.inner:
                    result.append(prefix + next(leaf))
                elif prefix in self.keys:
                    result.append(prefix)
        return result

    def level_arrays(self, low_bits: int | None) -> tuple[Arrays, npt.NDArray[np.int64]]:
        """The per-level sections but those of long tails, and the level table without these."""
        parts: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in LEVEL_SECTIONS}
        table = np.zeros((len(self.levels), len(LEVEL_COLUMNS)), np.int64)
        for d, level in enumerate(self.levels):
            inner = [prefix for prefix in level if prefix in self.inner]
            terminal = [prefix in self.keys for prefix in inner]
            tails = [tail for tail in self.tails[d] if tail]
            below = self.levels[d + 1] if d + 1 < len(self.levels) else []
            first = [i == 0 or below[i - 1][:-1] != p[:-1] for i, p in enumerate(below)]
            for name, bitmap in {
                "inner": [prefix in self.inner for prefix in level],
                "louds": first,
                "terminal": terminal,
                "tail": [bool(tail) for tail in self.tails[d]],
                "tail_long": [len(tail) > 1 for tail in tails],
            }.items():
                words = bits.pack_bits(np.array(bitmap, np.bool_))
                parts[name].append(words)
                parts[f"{name}_rank"].append(_even(bits.rank_directory(words, len(bitmap))))
                if name == "louds":
                    parts["louds_select"].append(_even(bits.select_directory(words, len(bitmap))))
            labels = [] if d == 0 else [prefix[-1] for prefix in level]
            one_token = [tail[0] for tail in tails if len(tail) == 1]
            label = _add_coded(parts, "label", labels, low_bits)
            tail_token = _add_coded(parts, "tail_token", one_token, low_bits)
            long_tails = len(tails) - len(one_token)
            counts = (len(level), len(inner), sum(terminal), len(tails), long_tails)
            table[d] = (*counts, *label, *tail_token, 0, 0, 0)
        arrays = {name: np.concatenate(part) for name, part in parts.items() if part}
        return arrays, table

    def tail_arrays(
        self, kind: str, low_bits: int | None
    ) -> tuple[Arrays, dict[str, list[Coding]], Coding, int, int]:
        """Sections of the long tails, coding of each level's suffix indices, and of the store.

        Then the tokens and the tails of the store.
        """
        long_tails = [[tail for tail in tails if len(tail) > 1] for tails in self.tails]
        if kind == "implicit":
            stored = [tail for tails in long_tails for tail in tails]
            indices: list[list[int]] = [[] for _ in long_tails]
        else:
            stored, position = _merge([tail for tails in long_tails for tail in tails])
            indices = [[position[tail] for tail in tails] for tails in long_tails]
        parts: dict[str, list[npt.NDArray[np.generic]]] = {}
        codings = [_add_coded(parts, "tail_index", index, low_bits) for index in indices]
        arrays: Arrays = {name: np.concatenate(part) for name, part in parts.items()}
        tokens = np.array([token for tail in stored for token in tail], np.uint64)
        ends = np.zeros(len(tokens), np.bool_)
        ends[np.cumsum([len(tail) for tail in stored], dtype=np.int64) - 1] = True
        end = bits.pack_bits(ends)
        low, flag, flag_rank, high, store = bits.encode(tokens, low_bits, np.uint64)
        arrays |= {"store_low": low, "store_flag": flag, "store_flag_rank": flag_rank}
        arrays |= {"store_high": high, "store_end": end}
        implicit = kind == "implicit"
        n = len(ends) if implicit else 0
        arrays["store_end_rank"] = bits.rank_directory(end[: bool(n) * len(end)], n, np.uint64)
        arrays["store_end_select"] = bits.select_directory(end[: bool(n) * len(end)], n)
        return arrays, {"tail_index": codings}, store, len(tokens), len(stored)


def _merge(tails: list[Ranks]) -> tuple[list[Ranks], dict[Ranks, int]]:
    """The tails that stand in an indexed store, in order, and the position of every tail."""
    uses = Counter(tails)
    distinct = sorted(uses, key=lambda tail: tail[::-1])
    holder: dict[Ranks, Ranks] = {}
    for i in reversed(range(len(distinct))):
        tail = distinct[i]
        after = distinct[i + 1] if i + 1 < len(distinct) else ()
        # Reversed, it begins the next one: it is a suffix of it.
        holder[tail] = holder[after] if after[-len(tail) :] == tail else tail
    total: Counter[Ranks] = Counter()
    for tail, count in uses.items():
        total[holder[tail]] += count
    stored = sorted(total, key=lambda tail: (-total[tail], tail[::-1]))
    ends = np.cumsum([len(tail) for tail in stored], dtype=np.int64)
    end = dict(zip(stored, ends.tolist(), strict=True))
    return stored, {tail: end[holder[tail]] - len(tail) for tail in distinct}


def _add_coded(
    parts: dict[str, list[npt.NDArray[np.generic]]],
    prefix: str,
    values: list[int],
    low_bits: int | None,
) -> Coding:
    low, flag, flag_rank, high, coding = bits.encode(np.array(values, np.uint64), low_bits)
    parts.setdefault(f"{prefix}_low", []).append(low)
    parts.setdefault(f"{prefix}_flag", []).append(flag)
    parts.setdefault(f"{prefix}_flag_rank", []).append(_even(flag_rank))
    parts.setdefault(f"{prefix}_high", []).append(high)
    return coding


def _even(entries: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """32-bit entries of a level, filled up to a 64-bit word."""
    return np.concatenate([entries, np.zeros(len(entries) % 2, entries.dtype)])


def _padded(arrays: Arrays) -> int:
    """Bytes in the file of the sections that depend on the kind of tails."""
    return sum(padded_bytes(name, len(arrays[name])) for name in arrays if name in SECTION)
