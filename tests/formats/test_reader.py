"""Files that are not right artifacts are refused by name of what is wrong."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from flashtrie.formats import reader
from flashtrie.formats.errors import (
    ArtifactChanged,
    ArtifactError,
    FlashTrieError,
    InputError,
    NewerFormatError,
)
from flashtrie.formats.header import MAX_HEADER_BYTES
from flashtrie.formats.reader import open_artifact
from flashtrie.formats.schema import SECTIONS, level_parameters, padded_bytes, sizes
from tests.formats.damage import Change, Document, change_header, plain, split


def refused(path: Path, match: str, kind: type[FlashTrieError] = ArtifactError) -> FlashTrieError:
    with pytest.raises(kind, match=match) as caught:
        open_artifact(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_open(whole):
    with open_artifact(whole) as artifact:
        header = artifact.header
        assert artifact.path == str(whole)
        assert artifact.bytes == whole.stat().st_size
        assert header.tags == {"night": "é 12"}
        assert len(header.digest) == 32
        assert (artifact.parameters == level_parameters(header)).all()
        assert not artifact.parameters.flags.writeable
        for section in SECTIONS:
            array = artifact.sections[section.name]
            assert array.dtype == section.dtype
            assert len(array) == sizes(header)[section.name]
            assert not array.flags.writeable and array.flags.c_contiguous
            offset = artifact.offsets[section.name]
            assert offset % 64 == 0
            assert artifact.pread(offset, array.nbytes) == array.tobytes()


def test_safetensors_reads_the_same_arrays(whole):
    tensors = load_file(whole)
    with open_artifact(whole) as artifact:
        assert set(tensors) == set(artifact.sections)
        for name, array in artifact.sections.items():
            tensor = tensors[name]
            assert tensor.dtype == array.dtype
            assert tensor.nbytes == padded_bytes(name, len(array))
            assert (tensor[: len(array)] == array).all()
            assert not tensor[len(array) :].any()


def test_arrays_outlive_the_artifact(whole):
    artifact = open_artifact(whole)
    alphabet = artifact.sections["alphabet"]
    before = alphabet.copy()
    artifact.close()
    artifact.close()
    assert (alphabet == before).all()
    with pytest.raises(ValueError, match="closed"):
        artifact.check_unchanged()


def test_cut_at_every_section(copy):
    data = copy.read_bytes()
    with open_artifact(copy) as artifact:
        bounds = sorted({8, artifact.header_bytes, len(data), *artifact.offsets.values()})
    for bound in bounds:
        for length in (bound - 1, bound, bound + 1):
            if length != len(data):
                copy.write_bytes((data + b"\0")[:length])
                refused(copy, "not a FlashTrie artifact|ends within|bytes where")
    copy.write_bytes(data)
    open_artifact(copy).close()


@pytest.mark.parametrize("grown", [b"\0", b"x" * 64])
def test_grown(copy, grown):
    size = copy.stat().st_size
    copy.write_bytes(copy.read_bytes() + grown)
    refused(copy, f"the file has {size + len(grown):,} bytes where {size:,} are right")


def test_not_an_artifact(tmp_path):
    path = tmp_path / "x.trie"
    refused(path, "No such file", InputError)
    path.mkdir()
    refused(path, "it is a directory")
    path.rmdir()
    path.write_bytes(b"")
    refused(path, "it is empty")
    path.write_bytes(b"abc")
    refused(path, "it has only 3 bytes")
    pq.write_table(pa.table({"tokens": [[1, 2]]}), path)
    refused(path, "it is a Parquet file")
    path.write_text("a text file, longer than a header's length field\n" * 10)
    refused(path, "state a header of")
    os.unlink(path)
    os.mkfifo(path)
    refused(path, "not a regular file")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, MAX_HEADER_BYTES])
def test_header_length(copy, length):
    data = copy.read_bytes()
    copy.write_bytes(length.to_bytes(8, "little") + data[8:])
    refused(copy, f"a header of {length:,} bytes")


def test_other_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "model.safetensors"
    save_file({"weights": np.zeros(64)}, path)
    refused(path, "no format flashtrie|no multiple of 64")


@pytest.mark.parametrize(
    "text",
    [b"{" * 5000, b"[" * 100_000, b"\xff" * 120, b"[1, 2]", b"null", b'{"a": 1' + b"0" * 9000],
)
def test_header_is_not_json(tmp_path, text):
    path = tmp_path / "x.trie"
    text += b" " * (-(8 + len(text)) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 64)
    refused(path, "not a FlashTrie artifact")


def respelled(document: Document) -> Iterator[str]:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    yield text.replace('"U64"', '"\\u00554"', 1)
    yield text.replace(",", ", ", 1)
    yield json.dumps(dict(reversed(document.items())), separators=(",", ":"))
    yield text[:-1] + "," + text[1:]  # every key twice
    yield text + "\n"
    yield text.replace("\\u00e9", "é")
    yield text.replace("[0]", "[-0]", 1)
    yield text.replace("[0]", "[0.0]", 1)


@pytest.mark.parametrize("spelling", range(8))
def test_header_spelled_otherwise(copy, spelling):
    document, payload = split(copy.read_bytes())
    text = list(respelled(document))[spelling].encode()
    text += b" " * (-(8 + len(text)) % 64)
    copy.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    refused(copy, "not spelled|not JSON|digest")


def test_header_nested_as_deep_as_can_be(copy):
    """At some depth JSON can be read, and not be written: both count frames of the stack."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 150, limit):
        text = b'{"__metadata__":{"format":"flashtrie"},"x":' + b"[" * depth + b"]" * depth + b"}"
        text += b" " * (-(8 + len(text)) % 64)
        copy.write_bytes(len(text).to_bytes(8, "little") + text)
        refused(copy, "not JSON|digest")


def test_more_padding(copy):
    document, payload = split(copy.read_bytes())
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64 + 64)
    copy.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    refused(copy, "not spelled")


def set_metadata(key: str, value: object) -> Change:
    def change(document: Document) -> None:
        document["__metadata__"][key] = value

    return change


def test_newer_version(copy):
    data = copy.read_bytes()
    newer = change_header(data, set_metadata("format_version", "2"))
    copy.write_bytes(newer)
    known = "this program knows versions up to 1"
    error = refused(copy, f"format version 2: {known}", NewerFormatError)
    assert (error.what, error.where, error.cause) == ("format version 2", str(copy), known)
    assert error.hint == "Upgrade flashtrie, or build the artifact with this version"
    # A later version may have other sections altogether.
    copy.write_bytes(change_header(newer, lambda document: document.pop("tail")))
    refused(copy, "version 2", NewerFormatError)
    # With a wrong digest it is damaged, whatever it states.
    at = newer.index(b'"digest":"') + 10
    copy.write_bytes(newer[:at] + bytes([newer[at] ^ 1]) + newer[at + 1 :])
    refused(copy, "digest")
    for version in ("0", "-1", "01", "1.0", "", "9" * 30):
        copy.write_bytes(change_header(data, set_metadata("format_version", version)))
        refused(copy, "version")


@pytest.mark.parametrize(
    "value",
    ["", "-1", "+1", "01", "1 ", "1e3", "0x1", "²", "9223372036854775808", "1" * 5000],
)
@pytest.mark.parametrize("key", ["keywords", "levels", "store_low_bits", "length.inner", "values"])
def test_metadata_is_no_number(copy, key, value):
    copy.write_bytes(change_header(copy.read_bytes(), set_metadata(key, value)))
    refused(copy, f"metadata {key} is")


@pytest.mark.parametrize("value", ["-0", "--1", "", "9223372036854775808", "-9223372036854775809"])
def test_value_min(copy, value):
    copy.write_bytes(change_header(copy.read_bytes(), set_metadata("value_min", value)))
    refused(copy, "metadata value_min is")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("keywords", "9223372036854775807"),
        ("nodes", "0"),
        ("levels", "0"),
        ("levels", "4097"),
        ("levels", "9223372036854775807"),
        ("alphabet_size", "0"),
        ("alphabet_size", "9223372036854775807"),
        ("vocab_size", "1"),
        ("vocab_size", "4294967296"),
        ("max_length", "1"),
        ("max_length", "4097"),
        ("tails", "none"),
        ("store_tokens", "9223372036854775807"),
        ("store_tails", "0"),
        ("store_low_bits", "3"),
        ("store_low_bits", "17"),
        ("store_high_bits", "0"),
        ("store_high_bits", "61"),
        ("store_highs", "9223372036854775807"),
        ("values", "1"),
        ("value_bits", "65"),
        ("length.inner", "9223372036854775807"),
        ("length.values", "0"),
        ("checksum.inner", "0" * 31),
        ("checksum.inner", "G" * 32),
        ("checksum.level_table", "0" * 32),
        ("unknown", "1"),
        ("length.unknown", "1"),
        ("tag.x", "\ud800"),
    ],
)
def test_metadata_that_lies(copy, key, value):
    copy.write_bytes(change_header(copy.read_bytes(), set_metadata(key, value)))
    refused(copy, "damaged artifact")


@pytest.mark.parametrize(
    "key", ["digest", "keywords", "value_min", "tails", "length.tail", "checksum.tail"]
)
def test_metadata_left_out(copy, key):
    document, payload = split(copy.read_bytes())
    del document["__metadata__"][key]
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    copy.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    refused(copy, "digest")
    if key != "digest":
        copy.write_bytes(change_header(copy.read_bytes(), lambda document: None))
        refused(copy, key)


def entry(key: str, value: object) -> Change:
    def change(document: Document) -> None:
        document["inner"][key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        entry("dtype", "I64"),
        entry("dtype", "F64"),
        entry("dtype", 8),
        entry("shape", [2**63]),
        entry("shape", []),
        entry("shape", [1, 64]),
        entry("shape", [-1]),
        entry("shape", None),
        entry("data_offsets", [0, 64]),
        entry("data_offsets", [2**63, 2**63 + 64]),
        entry("data_offsets", [64]),
        entry("data_offsets", "no"),
        entry("more", 1),
        lambda document: document["root"].update(data_offsets=document["alphabet"]["data_offsets"]),
        lambda document: document["level_table"].update(data_offsets=[0.0, True]),
        lambda document: document.pop("inner"),
        lambda document: document.update(more=document["inner"]),
        lambda document: document.update(inner=[]),
    ],
)
def test_sections_that_lie(copy, change):
    copy.write_bytes(change_header(copy.read_bytes(), change))
    refused(copy, "damaged artifact: (section|the header has)")


@pytest.mark.parametrize("wrong", [None, 1, 1.5, ["a"], {"a": "b"}])
def test_metadata_is_no_text(copy, wrong):
    copy.write_bytes(change_header(copy.read_bytes(), set_metadata("keywords", wrong)))
    refused(copy, "not a string")


def test_changed_while_open(copy):
    data = copy.read_bytes()
    with open_artifact(copy) as artifact:
        artifact.check_unchanged()
        os.utime(copy, ns=(0, 1))
        with pytest.raises(ArtifactChanged, match="copy.trie"):
            artifact.check_unchanged()
    with open_artifact(copy) as artifact:
        os.truncate(copy, len(data) - 1)
        with pytest.raises(ArtifactChanged):
            artifact.check_unchanged()
        with pytest.raises(ArtifactChanged, match="cut"):
            artifact.pread(len(data) - 64, 64)


def test_cut_while_it_is_opened(copy, monkeypatch):
    """Behind the look at its size, before it is mapped."""
    module: Any = reader
    real = module.digest

    def cutting(data: bytes) -> str:
        os.truncate(copy, os.path.getsize(copy) // 2)
        monkeypatch.setattr(reader, "digest", real)
        result: str = real(data)
        return result

    monkeypatch.setattr(reader, "digest", cutting)
    refused(copy, "the file was cut while it was read")


@pytest.mark.parametrize("digest", ["\ud800", "\x1b[2J", "a\nb"])
def test_a_message_is_fit_to_be_printed(copy, digest):
    document, payload = split(copy.read_bytes())
    document["__metadata__"]["digest"] = digest
    copy.write_bytes(plain(document) + payload)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(copy)
    assert str(caught.value).isprintable()
    assert str(caught.value).encode()


def test_replaced_while_open(copy, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"other")
    with open_artifact(copy) as artifact:
        alphabet = artifact.sections["alphabet"].copy()
        os.rename(other, copy)
        artifact.check_unchanged()
        assert (artifact.sections["alphabet"] == alphabet).all()
