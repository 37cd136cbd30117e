"""Long tails to the distinct ones among them, and which of those end another.

Tails are sorted by their reversed sequences with the machinery of the keywords, range by range. A
tail that ends others then stands directly before the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from flashtrie.builder import codes, levels
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.pack import bit_length, bit_lengths, ordered_map
from flashtrie.builder.plan import MAX_RANGES
from flashtrie.builder.ranges import LevelStore, LongTails, Records, range_store
from flashtrie.builder.scatter import Splitters, encode_rows, scatter
from flashtrie.builder.sort import pack_records, sort_records
from flashtrie.builder.spill import Kept, Shelf, Spill
from flashtrie.formats.jit import Int, jit
from flashtrie.formats.schema import MAX_LENGTH

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_BATCH_TAILS, _BATCH_TOKENS = 1 << 18, 1 << 20
# A range in memory, and what one takes while it is sorted and placed.
_RANGE_TAILS, _RANGE_TOKENS = 1 << 16, 1 << 20
_TAIL_BYTES, _TOKEN_BYTES = 64, 12
# The sample that borders come from: tails for each range; tokens, and places that they are read
# from, in all; and tokens of one tail, its last.
_SAMPLED_TAILS = 64
_SAMPLED_TOKENS, _SAMPLED_PLACES, _SAMPLED_END = 1 << 20, 1 << 12, 1 << 8
_NO_GROUP: I32 = np.empty(0, np.int32)


@dataclass(frozen=True)
class Workshop:
    """What the stages after the levels work with."""

    pool: Executor
    threads: int
    spill: Spill | None


@dataclass(frozen=True)
class Members:
    """Some tails of a range: ordinals int64, which long tail in key id order; group int32."""

    rows: int
    ordinals: Kept
    group: Kept

    def get(self) -> tuple[I64, I32]:
        """Both."""
        return self.ordinals.get(0, self.rows), self.group.get(0, self.rows)


@dataclass
class TailGroups:
    """The distinct tails of one range of reversed tails, in order: its groups.

    For each of `size` groups: lengths uint16 in tokens, uses uint32, chained bool: it ends the next
    group. histogram int64 [65]: bit lengths of the tokens of the groups that are not chained.
    members: all tails of the range, in one part or several.
    """

    size: int
    members: Sequence[Members]
    lengths: Kept
    uses: Kept
    chained: Kept
    histogram: I64
    head: bytes  # code strings of the first and the last group
    last: bytes
    last_chained: bool = False  # the last group ends the next range's first

    def chains(self) -> Bool:
        """`chained`, the last group included."""
        result = self.chained.get(0, self.size).copy()
        result[-1] = self.last_chained
        return result


def group_tails(
    store: LevelStore, alphabet_size: int, shelf: Shelf, workshop: Workshop
) -> list[TailGroups]:
    """Sort all long tails; the groups of each range, in order. About 100 ns a tail and core."""
    pool, threads = workshop.pool, workshop.threads
    code_of = rank_codes(alphabet_size)
    splitters = _splitters(store, code_of, _ranges(store, workshop.spill), workshop)
    result: list[TailGroups] = []
    # Tails wait beside the levels that hold them. In files that is half of them at a time, or
    # scratch would take more than 1.5 times the tokens of a key set without repetitions.
    turns = 1 if workshop.spill is None else min(2, splitters.ranges)
    bounds = [splitters.ranges * turn // turns for turn in range(turns + 1)]
    for first_range, stop in pairwise(bounds):
        ranges = range_store(splitters.ranges, workshop.spill, f"tails-{first_range}")

        def add(batch: Sequence[LongTails]) -> None:
            tokens, offsets = read_tails(batch)
            first = batch[0].first
            ordinals = np.arange(first, first + len(offsets) - 1)
            encoded = encode_rows(tokens, offsets, code_of, reverse=True)
            ranges.add(scatter(encoded, ordinals, splitters).only(first_range, stop))

        def group(r: int) -> TailGroups:
            return _group_range(ranges.take(r), shelf)

        for _ in ordered_map(pool, add, tail_batches(store), threads):
            pass
        result += ordered_map(pool, group, np.flatnonzero(ranges.rows).tolist(), threads)
    for here, following in pairwise(result):
        if following.head.startswith(here.last):
            here.last_chained = True
            here.histogram -= bit_lengths(_ranks(here.last))
    return result


def _ranges(store: LevelStore, spill: Spill | None) -> int:
    """Into how many ranges the long tails are divided."""
    tails = int(store.counts[:, levels.LONG_TAILS].sum())
    tokens = int(store.counts[:, levels.LONG_TOKENS].sum())
    ranges = max(1, tails // _RANGE_TAILS, tokens // _RANGE_TOKENS)
    if spill is not None:
        ranges = max(ranges, (_TAIL_BYTES * tails + _TOKEN_BYTES * tokens) // spill.range_bytes)
    return min(MAX_RANGES, ranges)


def _group_range(parts: Iterable[Records], shelf: Shelf) -> TailGroups:
    """Group the tails of a range. Of several parts each is grouped, and then their groups are."""
    members: list[Members] = []
    reduced: list[_Groups] = []
    for data, rows, ordinals in parts:
        if reduced:
            reduced[-1] = reduced[-1].packed()
        groups = _groups(data, np.ones(rows, np.uint32))
        members.append(Members(rows, shelf.put(ordinals), shelf.put(groups.group)))
        reduced.append(groups)
    if len(reduced) > 1:
        reduced[-1] = reduced[-1].packed()
        groups = _groups(
            np.concatenate([part.data for part in reduced]),
            np.concatenate([part.uses for part in reduced]),
        )
        first = 0
        for i, part in enumerate(reduced):
            _, group = members[i].get()
            renumbered = groups.group[first : first + len(part.uses)][group]
            members[i] = replace(members[i], group=shelf.put(renumbered))
            first += len(part.uses)
    head, last = (
        groups.data[groups.begins[i] : groups.begins[i] + groups.lengths[i]].tobytes()
        for i in (0, -1)
    )
    return TailGroups(
        size=len(groups.uses),
        members=members,
        lengths=shelf.put(groups.sizes),
        uses=shelf.put(groups.uses),
        chained=shelf.put(groups.chained),
        histogram=groups.histogram,
        head=head,
        last=last,
    )


@dataclass(frozen=True)
class _Groups:
    """The distinct records among some, in order.

    begins int64 [n], lengths int32 [n]: where their code strings stand in data; group int32: that
    of each record; the others as in TailGroups.
    """

    data: U8
    begins: I64
    lengths: I32
    group: I32
    sizes: npt.NDArray[np.uint16]
    uses: U32
    chained: Bool
    histogram: I64

    def packed(self) -> _Groups:
        """The same with no more data than that of the groups, and without the rest."""
        data, begins = pack_records(self.data, self.begins, self.lengths)
        return replace(self, data=data, begins=begins, group=_NO_GROUP)


def _groups(data: U8, weights: U32) -> _Groups:
    """Group records, which stand for `weights` uint32 tails each."""
    rows = len(weights)
    records = sort_records(data, rows)
    group = np.empty(rows, np.int32)
    sizes = np.empty(rows, np.uint16)
    uses = np.zeros(rows, np.uint32)
    chained = np.zeros(rows, np.bool_)
    histogram = np.zeros(65, np.int64)
    begins, lengths, order, same = records.begins, records.lengths, records.order, records.same
    n = _group(data, begins, lengths, order, same, weights, group, sizes, uses, chained, histogram)
    firsts = order[~same]
    return _Groups(
        data,
        begins[firsts],
        lengths[firsts],
        group,
        sizes[:n].copy(),
        uses[:n].copy(),
        chained[:n].copy(),
        histogram,
    )


def _ranks(code_string: bytes) -> U32:
    data = np.frombuffer(code_string, np.uint8)
    result = np.empty(len(data), np.uint32)
    return result[: codes.decode(data, 0, len(data), result)]


def _splitters(
    store: LevelStore, code_of: npt.NDArray[np.uint64], ranges: int, workshop: Workshop
) -> Splitters:
    """Borders between at most `ranges` ranges of about equal size, from the first tails of places.

    A place is a level of a range. Of a place that has many tails more are taken; of a long one only
    the end, which is what it is sorted by. The sample has at most two million tokens.
    """
    pieces = list(store.long_tails())
    tails = sum(piece.tails for piece in pieces)
    stride = max(1, tails // _SAMPLED_PLACES)
    # How many multiples of the stride are numbers of a piece's tails.
    shares = [(p, -(-(p.first + p.tails) // stride) - -(-p.first // stride)) for p in pieces]
    total = sum(share for _, share in shares)
    each = -(-_SAMPLED_TAILS * ranges // total)
    tokens_each = max(1, _SAMPLED_TOKENS // total)

    def draw(place: tuple[LongTails, int]) -> tuple[U32, I64]:
        piece, share = place
        tokens, ends = piece.read(share * tokens_each)
        picked = np.arange(0, len(ends), -(-len(ends) // (share * each)))
        begins = np.append(0, ends[:-1])[picked]
        ends = ends[picked]
        begins = np.maximum(begins, ends - _SAMPLED_END)
        behind = np.cumsum(ends - begins)
        n = max(1, int(np.searchsorted(behind, share * tokens_each, side="right")))
        spans = zip(begins[:n].tolist(), ends[:n].tolist(), strict=True)
        return np.concatenate([tokens[begin:end] for begin, end in spans]), behind[:n]

    places = [place for place in shares if place[1]]
    drawn = ordered_map(workshop.pool, draw, places, workshop.threads)
    tokens, offsets = _join(list(drawn))
    return Splitters.even(encode_rows(tokens, offsets, code_of, reverse=True), ranges)


def tail_batches(store: LevelStore) -> Iterator[list[LongTails]]:
    """Long tails, to be read together, in key id order."""
    waiting: list[LongTails] = []
    tails = tokens = 0
    for piece in store.long_tails():
        waiting.append(piece)
        tails += piece.tails
        tokens += piece.tokens
        if tails >= _BATCH_TAILS or tokens >= _BATCH_TOKENS:
            yield waiting
            waiting, tails, tokens = [], 0, 0
    if waiting:
        yield waiting


def read_tails(batch: Sequence[LongTails]) -> tuple[U32, I64]:
    """(tokens uint32, offsets int64 [tails + 1]) of a batch."""
    return _join([piece.read() for piece in batch])


def _join(parts: Sequence[tuple[U32, I64]]) -> tuple[U32, I64]:
    """(tokens, offsets) of parts (tokens, end of each tail)."""
    starts = np.cumsum([0, *(len(tokens) for tokens, _ in parts)])
    ends = [np.zeros(1, np.int64)]
    ends += [part_ends + start for (_, part_ends), start in zip(parts, starts, strict=False)]
    return np.concatenate([tokens for tokens, _ in parts]), np.concatenate(ends)


@jit
def _group(
    data: U8,
    begins: I64,
    lengths: I32,
    order: U32,
    same: Bool,
    weights: U32,
    group: I32,
    sizes: npt.NDArray[np.uint16],
    uses: U32,
    chained: Bool,
    histogram: I64,
) -> Int:
    """Number the distinct records in order; returns how many. See TailGroups."""
    ranks = np.empty(MAX_LENGTH, np.uint32)  # of the last group
    n = 0
    length = 0
    before = np.uint32(0)
    for i in range(len(order)):
        row = order[i]
        if not same[i]:
            size = np.int64(lengths[before])
            if n and size <= lengths[row]:
                if codes.compare(data, begins[before], size, data, begins[row], size) == 0:
                    chained[n - 1] = True
                    length = 0
            for k in range(length):
                histogram[bit_length(ranks[k])] += 1
            length = codes.decode(data, begins[row], np.int64(lengths[row]), ranks)
            sizes[n] = length
            n += 1
            before = row
        uses[n - 1] += weights[row]
        group[row] = n - 1
    for k in range(length):
        histogram[bit_length(ranks[k])] += 1
    return n
