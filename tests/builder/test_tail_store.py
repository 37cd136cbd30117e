"""Long tails are read a few times, whatever the memory; and in what order they are written."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import build as build_module
from flashtrie.builder import pipeline, plan, tail_pieces, tail_store, tails
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.build import build
from flashtrie.builder.ranges import LongTails
from flashtrie.builder.scatter import encode_rows, scatter
from flashtrie.builder.spill import PieceFiles, Shelf, Spill
from flashtrie.builder.tails import Members, Workshop, group_tails


def write(path: Any, keywords: list[list[int]]) -> None:
    column: Any = pa.array(keywords, pa.list_(pa.uint32()))
    pq.write_table(pa.table({"tokens": column}), path)


def tailed(rows: int, shared: float) -> list[list[int]]:
    """Keywords of 5 to 40 tokens; `shared` of them end like another, or in an end of another's."""
    rng = np.random.default_rng(0)
    keywords = []
    for i in range(rows):
        tail = (rng.pareto(0.5, int(rng.integers(3, 38))) * 3).astype(np.int64) % 70_000
        keywords.append([i // 100 + 1000, i % 100, *tail.tolist()])
        if i and rng.random() < shared:
            of = keywords[int(rng.integers(0, i))]
            keywords[i] = keywords[i][:2] + of[int(rng.integers(2, len(of) - 1)) :]
    return keywords


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds spill in little memory: many ranges, and many pieces of tails and of the store."""
    monkeypatch.setattr(plan, "_fits", lambda held, memory: False)
    monkeypatch.setattr(plan, "_SPILLED_RANGE_ROWS", 400)
    monkeypatch.setattr(pipeline, "_BATCH_ROWS", 1000)
    monkeypatch.setattr(tails, "_BATCH_TAILS", 200)

    def planned(*args: Any) -> Any:
        return replace(plan.plan_build(*args), range_bytes=60_000, buffer_bytes=50_000)

    monkeypatch.setattr(build_module, "plan_build", planned)


@pytest.mark.parametrize("shared", [0, 0.5, 0.97])
@pytest.mark.parametrize("threads", [1, 3])
def test_loads_do_not_depend_on_the_pieces(tmp_path, monkeypatch, small, shared, threads):
    """The same in one piece and in dozens: to be written each range is loaded once more.

    And each tail once; where the store is long, up to three times.
    """
    source = tmp_path / "rows.parquet"
    write(source, tailed(4000, shared))
    loads: list[str] = []  # threads append

    def counted(place: Any, name: str, key: str) -> None:
        function = getattr(place, name)

        def call(*args: Any, **options: Any) -> Any:
            loads.append(key)
            return function(*args, **options)

        monkeypatch.setattr(place, name, call)

    counted(Members, "get", "members")
    counted(tail_pieces.Placed, "begins", "begins")
    counted(tail_store, "read_tails", "tails")
    counted(PieceFiles, "remove", "removed")

    def made() -> tuple[bytes, Counter[str]]:
        loads.clear()
        output = tmp_path / "out.trie"
        build([source], output, tails="indexed", threads=threads, tmp_dir=tmp_path, force=True)
        return output.read_bytes(), Counter(loads)

    whole, once = made()
    monkeypatch.setattr(tail_pieces, "_LEAST_BITS", 5)
    monkeypatch.setattr(tail_pieces, "_PIECE_BYTES", 1 << 20)
    pieces, found = made()
    assert pieces == whole
    assert found["members"] == once["members"] and found["begins"] == once["begins"]
    assert once["tails"] <= found["tails"] <= 3 * once["tails"]
    assert (found["tails"] > once["tails"]) == (shared < 0.97)
    assert found["removed"] > once["removed"] + 50
    monkeypatch.undo()
    build([source], tmp_path / "memory.trie", tails="indexed")
    assert (tmp_path / "memory.trie").read_bytes() == whole


class Levels:
    """As much of a LevelStore as `tails` sees: long tails of pieces that have some each."""

    def __init__(self, pieces: list[list[list[int]]]) -> None:
        self._pieces = pieces
        self.reads = 0
        self.counts = np.zeros((1, 6), np.int64)
        self.counts[0, 4] = sum(len(piece) for piece in pieces)
        self.counts[0, 5] = sum(len(tail) for piece in pieces for tail in piece)

    def long_tails(self) -> Any:
        first = 0
        for piece in self._pieces:
            yield Piece(self, piece, first)
            first += len(piece)


class Piece(LongTails):
    """Tails without the file behind them."""

    def __new__(cls, store: Levels, rows: list[list[int]], first: int) -> Piece:
        made = super().__new__(cls, None, 0, first)  # type: ignore[arg-type]
        made.store, made.rows = store, rows
        return made

    store: Levels
    rows: list[list[int]]

    @property
    def tails(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return sum(map(len, self.rows))

    def read(self, most: int | None = None) -> tuple[Any, Any]:
        self.store.reads += 1
        ends = np.cumsum([len(row) for row in self.rows])
        if most is not None:
            ends = ends[: max(1, int(np.searchsorted(ends, most, side="right")))]
        flat = [token for row in self.rows for token in row]
        return np.array(flat[: ends[-1]], np.uint32), ends


@pytest.mark.parametrize("pieces", [1, 40])
def test_one_range_takes_one_turn(tmp_path, monkeypatch, pieces):
    levels = Levels([[[i, 7, 8], [i, 9]] for i in range(pieces)])
    monkeypatch.setattr(tails, "_BATCH_TAILS", 1)
    drawn = tails._splitters

    def splitters(*args: Any) -> Any:
        found = drawn(*args)
        levels.reads = 0
        return found

    monkeypatch.setattr(tails, "_splitters", splitters)
    spill = Spill(tmp_path, 1 << 20, 1 << 20, 0)
    with ThreadPoolExecutor(2) as pool:
        workshop = Workshop(pool, 2, spill)
        shelf = Shelf(spill, "tails")
        groups = group_tails(levels, 100, shelf, workshop)  # type: ignore[arg-type]
        shelf.close()
    assert [g.size for g in groups] == [2 * pieces]
    assert levels.reads == pieces


@pytest.mark.parametrize(
    ("pieces", "tails_each", "length"), [(1, 5000, 3), (3000, 3, 500), (3000, 1, 20), (7, 900, 40)]
)
def test_the_sample_is_small_and_its_borders_divide(monkeypatch, pieces, tails_each, length):
    monkeypatch.setattr(tails, "_SAMPLED_TOKENS", 4000)
    monkeypatch.setattr(tails, "_SAMPLED_PLACES", 200)
    monkeypatch.setattr(tails, "_SAMPLED_END", 8)
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 100, (tails_each, length)).tolist() for _ in range(pieces)]
    levels = Levels(rows)
    drawn: list[int] = []

    def encoded(tokens: Any, *args: Any, **options: Any) -> Any:
        drawn.append(len(tokens))
        return encode_rows(tokens, *args, **options)

    monkeypatch.setattr(tails, "encode_rows", encoded)
    code_of = rank_codes(100)
    with ThreadPoolExecutor(2) as pool:
        splitters = tails._splitters(levels, code_of, 5, Workshop(pool, 2, None))  # type: ignore[arg-type]
    (tokens,) = drawn
    assert tokens <= 2 * 4000
    assert levels.reads <= 2 * 200
    everything = np.array(rows, np.uint32).reshape(-1, length)
    offsets = np.arange(len(everything) + 1) * length
    encoded_rows = encode_rows(everything.reshape(-1), offsets, code_of, reverse=True)
    sizes = scatter(encoded_rows, None, splitters).rows
    assert len(sizes) == 5
    assert sizes.max() < 1.6 * len(everything) / 5
