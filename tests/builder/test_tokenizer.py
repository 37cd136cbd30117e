from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashtrie.builder import tokenizer as tokenizer_module
from flashtrie.builder.source import Source
from flashtrie.formats.errors import InputError, UsageError

tokenizers = pytest.importorskip("tokenizers")

WORDS = {"[UNK]": 0, "[CLS]": 1, "[PAD]": 2, "red": 3, "shoe": 4, "blue": 70000}
TEXTS = ["red shoe", "blue", "green shoe shoe"]
IDS = [[3, 4], [70000], [0, 4, 4]]


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Words to ids; with special tokens, truncation to one token and padding, all to be off."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 1)]
    )
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(pad_id=2, pad_token="[PAD]")
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def write(path: Path, strings: Any, kind: Any = pa.string(), **columns: Any) -> Path:  # noqa: B008
    encoded = pa.types.is_dictionary(kind)
    query = pa.array(strings).dictionary_encode() if encoded else pa.array(strings, kind)
    try:
        pq.write_table(pa.table({"query": query, **columns}), path, row_group_size=2)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow {pa.__version__}: {error}")
    return path


def read(source: Source, batch_rows: int = 65536) -> list[list[int]]:
    return [
        batch.tokens[start:stop].tolist()
        for task in source.tasks
        for batch in source.read(task, batch_rows)
        for start, stop in zip(batch.offsets, batch.offsets[1:], strict=False)
    ]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
@pytest.mark.parametrize("strings", [1, 4096])
def test_text_columns(
    tmp_path: Path,
    tokenizer_file: str,
    kind: Any,
    strings: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenizer_module, "_STRINGS", strings)
    file = write(tmp_path / "a.parquet", TEXTS, kind, tokens=[[1], [2], [3]])
    source = Source.open([file], tokenizer=tokenizer_file)
    assert source.column == "query"
    assert source.tokens >= 6
    assert read(source) == read(source, 1) == IDS


def test_values_nulls_and_empty_encodings(tmp_path: Path, tokenizer_file: str) -> None:
    texts = ["red", None, "  ", "blue", ""]
    file = write(tmp_path / "a.parquet", texts, id=pa.array([10, 11, 12, 13, 14]))

    def opened(**options: str) -> Source:
        return Source.open([file], values="id", tokenizer=tokenizer_file, **options)

    with pytest.raises(InputError, match="row group 0, row 1: the keyword is null"):
        read(opened())
    with pytest.raises(InputError, match="row group 1, row 2: 1 keyword has no tokens"):
        read(opened(nulls="skip"))
    source = opened(nulls="skip", empty="skip")
    assert read(source) == [[3], [70000]]
    batches = [batch for task in source.tasks for batch in source.read(task)]
    assert [b.values.tolist() for b in batches if b.values is not None] == [[10], [13], []]
    assert [(b.skipped_nulls, b.skipped_empty) for b in batches] == [(1, 0), (0, 1), (0, 1)]


def test_too_many_tokens(tmp_path: Path, tokenizer_file: str) -> None:
    file = write(tmp_path / "a.parquet", ["red", "blue", "red " * 4097])
    with pytest.raises(InputError, match="row group 1, row 2: the keyword has 4097 tokens"):
        read(Source.open([file], tokenizer=tokenizer_file))


def test_text_that_is_not_utf8(tmp_path: Path, tokenizer_file: str) -> None:
    bad = pa.StringArray.from_buffers(
        3,
        pa.py_buffer(b"\0\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0"),
        pa.py_buffer(b"red\xffx"),
    )
    pq.write_table(pa.table({"query": bad}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row group 0, row 1: the text is not UTF-8"):
        read(Source.open([tmp_path], tokenizer=tokenizer_file))


def test_a_string_column_needs_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'query' is text, which needs --tokenizer"):
        Source.open([write(tmp_path / "a.parquet", TEXTS)])


def test_two_text_columns(tmp_path: Path, tokenizer_file: str) -> None:
    file = write(tmp_path / "a.parquet", TEXTS, title=["red", "red", "red"])
    with pytest.raises(InputError, match="'query' and 'title' are text: choose with --column"):
        Source.open([file], tokenizer=tokenizer_file)
    assert read(Source.open([file], column="title", tokenizer=tokenizer_file)) == [[3]] * 3


def test_tokenizer_without_a_text_column(tmp_path: Path, tokenizer_file: str) -> None:
    pq.write_table(pa.table({"tokens": [[1]]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="no column is text for the tokenizer"):
        Source.open([tmp_path], tokenizer=tokenizer_file)


def test_bad_tokenizer_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such tokenizer file"):
        Source.open(["x"], tokenizer=tmp_path / "nothing.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UsageError, match=r"bad\.json: not a tokenizer\.json"):
        Source.open(["x"], tokenizer=tmp_path / "bad.json")


def test_missing_package(tokenizer_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"pip install 'flashtrie\[text\]'"):
        Source.open(["x"], tokenizer=tokenizer_file)
