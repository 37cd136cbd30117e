"""The levels of all ranges, joined in order into one artifact.

Sections are written level by level: integers stream through the coder in chunks, bits are
appended with a shift, and directories are built once over the joined bits. What is held is the
bits of one level, and for indexed tails the long tails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.builder import levels
from flashtrie.builder.pack import CodedWriter, join_bits, write_packed
from flashtrie.builder.ranges import LevelStore
from flashtrie.builder.spill import Shelf
from flashtrie.builder.tail_store import TailStore, WrittenStore, kept_tails, least_index_bits
from flashtrie.builder.tails import TailGroups, Workshop, group_tails
from flashtrie.formats import bits, schema
from flashtrie.formats.errors import InputError
from flashtrie.formats.schema import COLUMN, MAX_LEVEL_NODES, PARAMETER, Coding, Header
from flashtrie.formats.writer import ArtifactWriter

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """What a build may choose of the layout: None is what takes the least space."""

    low_bits: int | None = None
    tails: str | None = None


@dataclass(frozen=True)
class ArtifactPlan:
    """An artifact before it is written: its header, and the indexed tail store or None."""

    header: Header
    store: TailStore | None


def plan_artifact(
    store: LevelStore,
    alphabet_size: int,
    vocab_size: int,
    layout: Layout,
    tags: dict[str, str],
    shelf: Shelf,
    workshop: Workshop,
) -> ArtifactPlan:
    """Choose the coding of every array and the kind of tails from the counts of all ranges.

    Unless the layout says implicit, long tails are sorted and deduplicated.
    """
    header = _implicit_header(store, alphabet_size, vocab_size, layout, tags)
    if layout.tails == "implicit" or (layout.tails is None and not header.store_tokens):
        return ArtifactPlan(header, None)
    ranges = group_tails(store, alphabet_size, shelf, workshop) if header.store_tokens else []
    if layout.tails is None and _bytes(header) <= _least_indexed_bytes(header, ranges, layout):
        return ArtifactPlan(header, None)
    first_long = np.cumsum([0, *header.level_table[:, COLUMN["long_tails"]]])
    tails = TailStore(ranges, first_long, shelf, workshop)
    indexed = _indexed_header(header, tails, layout)
    if layout.tails is None and _bytes(header) <= _bytes(indexed):
        return ArtifactPlan(header, None)
    return ArtifactPlan(indexed, tails)


def write_artifact(
    writer: ArtifactWriter,
    plan: ArtifactPlan,
    store: LevelStore,
    alphabet: npt.NDArray[np.uint32],
    workshop: Workshop,
) -> None:
    """Write all sections but the checksums, which belong to the writer's commit."""
    header = plan.header
    pool, threads = workshop.pool, workshop.threads
    tail_store = None if plan.store is None else plan.store.write_to(store)
    writer.write("alphabet", 0, alphabet)
    parameters = schema.level_parameters(header)
    coders = {
        prefix: CodedWriter(
            writer, prefix, np.uint64 if prefix == "store" else np.uint32, pool, threads
        )
        for prefix in ("label", "tail_token", "tail_index", "store")
    }
    _write_root(writer, store, len(alphabet), workshop)
    for d, row in enumerate(parameters):
        at = {name: int(row[PARAMETER[f"{name}_offset"]]) for name in schema.LEVEL_SECTIONS}
        nodes, inner, tails, longs = (
            int(row[COLUMN[c]]) for c in ("nodes", "inner", "tails", "long_tails")
        )
        if d:
            labels = store.integers(levels.LABELS, d, pool, threads)
            coders["label"].write(labels, nodes, _coding(row, "label"), at)
        singles = store.integers(levels.SINGLES, d, pool, threads)
        coders["tail_token"].write(singles, tails - longs, _coding(row, "tail_token"), at)
        if tail_store is not None:
            indices = tail_store.indices(int(row[PARAMETER["first_long_tail"]]), longs)
            coders["tail_index"].write(indices, longs, _coding(row, "tail_index"), at)
        for name, kind, n in (
            ("inner", levels.INNER_BITS, nodes),
            ("terminal", levels.TERMINAL_BITS, inner),
            ("tail", levels.TAIL_BITS, nodes - inner),
            ("tail_long", levels.LONG_BITS, tails),
        ):
            _write_bits(writer, name, at, join_bits(store.bits(kind, d)), n)
        if d + 1 < len(parameters):
            below = join_bits(store.bits(levels.FIRST_BITS, d + 1))
            _write_bits(writer, "louds", at, below, int(parameters[d + 1, COLUMN["nodes"]]), inner)
    _write_store(writer, header, tail_store, store, coders["store"], workshop)
    if header.values:
        write_packed(
            writer,
            "values",
            _of_all_levels(store, levels.VALUES, workshop),
            header.value_min,
            header.value_bits,
            pool,
            threads,
        )


def _of_all_levels(store: LevelStore, kind: int, workshop: Workshop) -> Iterator[Array]:
    """The integers of a kind, level by level."""
    for d in range(len(store.counts)):
        yield from store.integers(kind, d, workshop.pool, workshop.threads)


def _write_root(
    writer: ArtifactWriter, store: LevelStore, alphabet_size: int, workshop: Workshop
) -> None:
    present = np.zeros(alphabet_size, np.bool_)
    for labels in store.integers(levels.LABELS, 0, workshop.pool, workshop.threads):
        present[labels] = True
    root = bits.pack_bits(present)
    writer.write("root", 0, root)
    writer.write("root_rank", 0, bits.rank_directory(root, alphabet_size))


def _write_bits(
    writer: ArtifactWriter, name: str, at: dict[str, int], bitmap: U64, n: int, ones: int = 0
) -> None:
    """Write a bitmap of n bits with its rank directory; with a select directory for `ones`."""
    if not n:
        return
    writer.write(name, at[name], bitmap)
    writer.write(f"{name}_rank", at[f"{name}_rank"], bits.rank_directory(bitmap, n))
    if ones:
        select = bits.select_directory(bitmap, n)
        writer.write(f"{name}_select", at[f"{name}_select"], select)


def _write_store(
    writer: ArtifactWriter,
    header: Header,
    tail_store: WrittenStore | None,
    store: LevelStore,
    coder: CodedWriter,
    workshop: Workshop,
) -> None:
    at = dict.fromkeys((f"store_{part}" for part in ("low", "flag", "flag_rank", "high")), 0)
    n = header.store_tokens
    if tail_store is not None:
        coder.write(tail_store.tokens(), n, header.store, at)
        writer.write("store_end", 0, tail_store.ends())
        return
    coder.write(_of_all_levels(store, levels.LONGS, workshop), n, header.store, at)
    ends = join_bits(part for d in range(header.levels) for part in store.bits(levels.END_BITS, d))
    if n:
        writer.write("store_end", 0, ends)
        writer.write("store_end_rank", 0, bits.rank_directory(ends, n, np.uint64))
        writer.write("store_end_select", 0, bits.select_directory(ends, n))


def _coding(row: I64, prefix: str) -> Coding:
    return Coding(*(int(row[COLUMN[f"{prefix}_{field}"]]) for field in Coding._fields))


def _set_coding(table: I64, d: int, prefix: str, coding: Coding) -> None:
    for field, value in zip(Coding._fields, coding, strict=True):
        table[d, COLUMN[f"{prefix}_{field}"]] = value


def _implicit_header(
    store: LevelStore, alphabet_size: int, vocab_size: int, layout: Layout, tags: dict[str, str]
) -> Header:
    counts, histograms = store.counts, store.histograms
    table = np.zeros((len(counts), len(schema.LEVEL_COLUMNS)), np.int64)
    for column, kind in (
        ("nodes", levels.NODES),
        ("inner", levels.INNER),
        ("terminals", levels.TERMINALS),
        ("tails", levels.TAILS),
        ("long_tails", levels.LONG_TAILS),
    ):
        table[:, COLUMN[column]] = counts[:, kind]
    most = int(table[:, COLUMN["nodes"]].max())
    if most > MAX_LEVEL_NODES:
        raise InputError(
            "too many nodes on one level",
            cause=f"{most:,} prefixes of one length, at most {MAX_LEVEL_NODES:,} are possible",
            hint="Split the key set into several artifacts",
        )
    for d in range(len(table)):
        if d:
            coding = bits.choose_coding(histograms[levels.LABELS, d], layout.low_bits)
            _set_coding(table, d, "label", coding)
        coding = bits.choose_coding(histograms[levels.SINGLES, d], layout.low_bits)
        _set_coding(table, d, "tail_token", coding)
    keywords = int(
        (counts[:, levels.NODES] - counts[:, levels.INNER] + counts[:, levels.TERMINALS]).sum()
    )
    low, high = store.value_range if store.value_range is not None else (0, 0)
    return Header(
        keywords=keywords,
        nodes=int(counts[:, levels.NODES].sum()),
        alphabet_size=alphabet_size,
        vocab_size=vocab_size,
        max_length=store.max_length,
        tails="implicit",
        store_tokens=int(counts[:, levels.LONG_TOKENS].sum()),
        store_tails=int(counts[:, levels.LONG_TAILS].sum()),
        store=bits.choose_coding(histograms[levels.LONGS].sum(axis=0), layout.low_bits),
        values=keywords if store.value_range is not None else 0,
        value_min=low,
        value_bits=(high - low).bit_length(),
        level_table=table,
        tags=tags,
    )


def _indexed_header(header: Header, tails: TailStore, layout: Layout) -> Header:
    table = header.level_table.copy()
    for d, histogram in enumerate(tails.index_histograms):
        _set_coding(table, d, "tail_index", bits.choose_coding(histogram, layout.low_bits))
    return replace(
        header,
        tails="indexed",
        store_tokens=tails.tokens,
        store_tails=tails.tails,
        store=bits.choose_coding(tails.token_histogram, layout.low_bits),
        level_table=table,
    )


def _bytes(header: Header) -> int:
    """Bytes of all sections but the checksums."""
    sizes = schema.sizes(header)
    del sizes["chunk_digests"]
    return sum(schema.padded_bytes(name, n) for name, n in sizes.items())


def _least_indexed_bytes(header: Header, ranges: Sequence[TailGroups], layout: Layout) -> int:
    """What an artifact with these tails indexed takes at least: the indices are only bounded."""
    tokens = sum((groups.histogram for groups in ranges), np.zeros(65, np.int64))
    tails = sum(kept_tails(groups) for groups in ranges)
    indexed = replace(
        header,
        tails="indexed",
        store_tokens=int(tokens.sum()),
        store_tails=tails,
        store=bits.choose_coding(tokens, layout.low_bits),
    )
    return _bytes(indexed) + least_index_bits(tails) // 8
