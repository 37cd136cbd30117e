"""Batches are small whatever rows come together, and messages name the rows of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import source as source_module
from flashtrie.builder import tokenizer as tokenizer_module
from flashtrie.builder.batches import Batch, Place, decode, joined, spans, without_views
from flashtrie.builder.source import Source
from flashtrie.formats.errors import InputError

U32 = pa.list_(pa.uint32())
ROWS = [[1], [2, 3], [], [4, 5, 6, 7], [8], [9, 10], [11]]


def uneven(path: Path, long: int, tokens: int, short: int) -> Path:
    """`long` rows of `tokens` tokens, then `short` rows of one."""
    lengths = np.repeat([tokens, 1], [long, short])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    flat = pa.array(np.arange(lengths.sum()) % 1000, pa.uint32())
    table = pa.table({"tokens": pa.ListArray.from_arrays(offsets, flat)})
    pq.write_table(table, path, row_group_size=len(lengths))
    return path


def test_long_rows_before_short_ones(tmp_path: Path) -> None:
    """By the average of the row group, all long rows would be one batch: of 2 million tokens."""
    source = Source.open([uneven(tmp_path / "a.parquet", 500, 4096, 200_000)])
    (task,) = source.tasks
    batches = [(len(b), len(b.tokens), b.first_row) for b in source.read(task)]
    assert max(tokens for _, tokens, _ in batches) == 1 << 20
    assert sum(rows for rows, _, _ in batches) == 200_500
    assert [first for _, _, first in batches] == [
        sum(rows for rows, _, _ in batches[:i]) for i in range(len(batches))
    ]


@pytest.mark.parametrize(
    "kind",
    [U32, pa.large_list(pa.int64()), pa.list_view(pa.int32()), pa.large_list_view(pa.uint8())],
    ids=str,
)
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 100])
def test_spans(kind: Any, most: int) -> None:
    lists = without_views(pa.array([[0] * 9, *ROWS, [0] * 9], kind)[1:-1])
    found = list(spans(lists, most))
    assert [row for start, stop in found for row in lists[start:stop].to_pylist()] == ROWS
    for start, stop in found:
        assert stop == start + 1 or sum(map(len, ROWS[start:stop])) <= most
        # Not one row more would do.
        assert stop == len(ROWS) or sum(map(len, ROWS[start : stop + 1])) > most


def test_spans_of_equal_rows() -> None:
    lists = pa.array([[1, 2, 3]] * 10, pa.list_(pa.int32(), 3))
    assert list(spans(lists[1:9], 7)) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert list(spans(lists[:0], 7)) == []


def test_spans_have_values_and_rows_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_BATCH_TOKENS", 3)
    monkeypatch.setattr(source_module, "_rows_per_read", lambda task, text: 100)
    table = pa.table({"tokens": pa.array(ROWS, U32), "value": list(range(len(ROWS)))})
    pq.write_table(table, tmp_path / "a.parquet")
    source = Source.open([tmp_path], values="value", empty="skip")
    batches = list(source.read(source.tasks[0]))
    assert [v for b in batches if b.values is not None for v in b.values] == [0, 1, 3, 4, 5, 6]
    assert [len(b.tokens) for b in batches] == [3, 4, 3, 1]
    with pytest.raises(InputError, match="row 2: --empty|row group 0, row 2"):
        list(Source.open([tmp_path]).read(source.tasks[0]))
    pq.write_table(pa.table({"tokens": [*ROWS[:2], *ROWS[3:], [-1]]}), tmp_path / "a.parquet")
    source = Source.open([tmp_path])
    with pytest.raises(InputError, match="row group 0, row 6: token id -1"):
        list(source.read(source.tasks[0]))


def test_text_is_read_and_encoded_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages have a dictionary: 3,000 rows of 1,000 words each stand in some kilobytes."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"[UNK]": 0, "red": 1, "shoe": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["red " * 1000, "shoe " * 1000, "red"] * 1000
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    source = Source.open([tmp_path / "a.parquet"], tokenizer=tmp_path / "tokenizer.json")
    (task,) = source.tasks
    assert task.bytes < 100_000
    pieces: list[list[str]] = []
    split = tokenizer_module._pieces

    def seen(given: list[str]) -> Any:
        for piece in split(given):
            pieces.append(piece)
            yield piece

    monkeypatch.setattr(tokenizer_module, "_pieces", seen)
    batches = list(source.read(task, 1 << 16))
    assert sum(map(len, batches)) == 3000
    assert sum(len(batch.tokens) for batch in batches) == 2_001_000
    assert max(len(batch.tokens) for batch in batches) <= 1 << 20
    assert max(map(len, batches)) <= 1024
    assert max(sum(map(len, piece)) for piece in pieces) <= 1 << 18
    assert [text for piece in pieces for text in piece] == texts


def test_a_text_longer_than_a_piece_is_alone() -> None:
    long = "x" * (1 << 19)
    assert list(tokenizer_module._pieces(["a", long, "b", "c"])) == [["a"], [long], ["b", "c"]]
    assert list(tokenizer_module._pieces([])) == []


def batch(rows: list[list[int]], first_row: int, *, empty: int = 0) -> Batch:
    values = pa.array([len(row) for row in rows] + [0] * empty, pa.int64())
    lists = pa.array(rows + [[]] * empty, U32)
    return decode(lists, values, Place("f.parquet", 2, first_row), skip_nulls=False)


def test_small_batches_are_joined() -> None:
    rows = [[i] * (1 + i % 3) for i in range(20)]
    small = [batch(rows[i : i + 2], 100 + i, empty=int(i == 4)) for i in range(0, 20, 2)]
    found = list(joined(small, 16, 1000))
    assert [len(b) for b in found] == [8, 8, 4]
    assert [b.first_row for b in found] == [100, 108, 116]
    assert [(b.skipped_empty, b.first_empty) for b in found] == [(1, 106), (0, -1), (0, -1)]
    tokens = [np.split(b.tokens, b.offsets[1:-1]) for b in found]
    assert [row.tolist() for some in tokens for row in some] == rows
    assert [v for b in found if b.values is not None for v in b.values] == [*map(len, rows)]


def test_large_batches_stay_as_they_are() -> None:
    large = [batch([[1, 2, 3]] * 8, 0), batch([[4]] * 3, 8), batch([[5] * 70] * 3, 11)]
    assert [id(b) for b in joined(large, 16, 200)] == [id(b) for b in large]
    assert list(joined([], 16, 200)) == []
