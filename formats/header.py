"""The header of an artifact: how it is spelled, its digest, and what it must say.

Nothing in a file is trusted. `parse` proves the spelling and the digest before it looks at the
version, since those two rules are the same in all versions; `decode` and `check_layout` prove
the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from flashtrie.formats.checksums import digest
from flashtrie.formats.errors import ArtifactError, NewerFormatError, UsageError
from flashtrie.formats.schema import (
    ALIGNMENT,
    DTYPE_NAMES,
    FORMAT,
    LEVEL_COLUMNS,
    MAX_LENGTH,
    SECTION,
    SECTIONS,
    VERSION,
    Coding,
    Header,
    padded_bytes,
    sizes,
)

MAX_HEADER_BYTES = 1 << 20
# What is not for tags: the rest takes 8 KB, with the largest numbers some more.
_REST_BYTES = 16 << 10
LENGTH_BYTES = 8

_METADATA = "__metadata__"  # safetensors' name for it
_DIGEST = re.compile(r"[0-9a-f]{32}")
_NO_DIGEST = "0" * 32
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_SIGNED_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")
_COUNTS = (
    "keywords",
    "nodes",
    "levels",
    "alphabet_size",
    "vocab_size",
    "max_length",
    "store_tokens",
    "store_tails",
    "store_low_bits",
    "store_high_bits",
    "store_highs",
    "values",
    "value_bits",
)

Document = dict[str, Any]


def damaged(where: str, cause: str) -> ArtifactError:
    """The error for an artifact that breaks a rule of the format."""
    return ArtifactError("damaged artifact", where, cause, "Copy it or build it again")


def foreign(where: str, cause: str) -> ArtifactError:
    """The error for a file that never was an artifact."""
    return ArtifactError("not a FlashTrie artifact", where, cause, "`trie build` makes one")


def encode(header: Header, checksums: Mapping[str, str]) -> bytes:
    """Spell a header: length field, canonical JSON with the digest, padding. O(levels).

    `checksums` has 32 hex digits by section; the header has the same length with any others.
    Raises UsageError as `check_tags` does.
    """
    check_tags(header.tags)
    document = _document(header, checksums, sizes(header))
    document[_METADATA]["digest"] = digest(_spell(document))
    return _spell(document)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise UsageError where an artifact cannot have these tags, whatever its counts are."""
    for text in (text for tag in tags.items() for text in tag):
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise UsageError("a tag that is not Unicode text", repr(text)) from error
    size, most = len(_show(_tags(tags))), MAX_HEADER_BYTES - _REST_BYTES
    if size > most:
        cause = f"they take {size:,} bytes of the header, and have room for {most:,}"
        raise UsageError("the tags are too long", cause=cause)


def file_offsets(header_bytes: int, lengths: Mapping[str, int]) -> dict[str, int]:
    """Byte of the file at which each section begins; the last entry, "", is the file's size."""
    offsets = {}
    end = header_bytes
    for section in SECTIONS:
        offsets[section.name] = end
        end += padded_bytes(section.name, lengths[section.name])
    return offsets | {"": end}


def _document(header: Header, checksums: Mapping[str, str], lengths: Mapping[str, int]) -> Document:
    metadata = {
        "format": FORMAT,
        "format_version": str(VERSION),
        "digest": _NO_DIGEST,
        "keywords": str(header.keywords),
        "nodes": str(header.nodes),
        "levels": str(header.levels),
        "alphabet_size": str(header.alphabet_size),
        "vocab_size": str(header.vocab_size),
        "max_length": str(header.max_length),
        "tails": header.tails,
        "store_tokens": str(header.store_tokens),
        "store_tails": str(header.store_tails),
        **{f"store_{name}": str(value) for name, value in header.store._asdict().items()},
        "values": str(header.values),
        "value_min": str(header.value_min),
        "value_bits": str(header.value_bits),
        **{f"length.{name}": str(length) for name, length in lengths.items()},
        **{f"checksum.{section.name}": checksums[section.name] for section in SECTIONS},
        **_tags(header.tags),
    }
    return {_METADATA: metadata, **_entries(lengths)}


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"tag.{key}": value for key, value in tags.items()}


def _entries(lengths: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The safetensors entry of each section."""
    begins = file_offsets(0, lengths)
    entries = {}
    for name, length in lengths.items():
        size = padded_bytes(name, length)
        dtype = SECTION[name].dtype
        entries[name] = {
            "dtype": DTYPE_NAMES[dtype],
            "shape": [size // dtype.itemsize],
            "data_offsets": [begins[name], begins[name] + size],
        }
    return entries


def _spell(document: Document) -> bytes:
    text = _show(document).encode()
    padding = -(LENGTH_BYTES + len(text)) % ALIGNMENT
    length = len(text) + padding
    return length.to_bytes(LENGTH_BYTES, "little") + text + b" " * padding


def parse(raw: bytes, where: str) -> Document:
    """The JSON of a header whose format, spelling, digest and version are right.

    `raw` has the length field and the padding. O(bytes), which the caller has bounded.
    """
    try:
        document: Document = json.loads(raw[LENGTH_BYTES:].decode("ascii"))
        spelled = _spell(document)
    except (ValueError, RecursionError) as error:
        raise foreign(where, "the header is not JSON") from error
    metadata = document.get(_METADATA) if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise foreign(where, f"the metadata of the header has no format {FORMAT}")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise damaged(where, "the header's metadata has a value that is not a string")
    if spelled != raw:
        raise damaged(where, "the header is not spelled in the canonical way")
    stated = metadata.get("digest", "")
    expected = digest(_spell(document | {_METADATA: metadata | {"digest": _NO_DIGEST}}))
    if stated != expected:
        raise damaged(where, f"the header has the digest {expected} and states {stated!r}")
    version = _count(metadata, "format_version", where)
    if version > VERSION:
        raise NewerFormatError(
            f"format version {version}",
            where,
            f"this program knows versions up to {VERSION}",
            "Upgrade flashtrie, or build the artifact with this version",
        )
    if version < 1:
        raise damaged(where, f"format version {version} does not exist")
    return document


def levels(document: Document, where: str) -> int:
    """The number of levels that a header states, 1 to 4,096."""
    count = _count(document[_METADATA], "levels", where)
    if not 1 <= count <= MAX_LENGTH:
        raise damaged(where, f"{count} levels; there are 1 to {MAX_LENGTH:,}")
    return count


def decode(document: Document, level_table: npt.NDArray[np.int64], where: str) -> Header:
    """The header as an object. Its counts are numbers, and not yet known to fit each other."""
    metadata = document[_METADATA]
    assert level_table.shape[1] == len(LEVEL_COLUMNS)
    count = {name: _count(metadata, name, where) for name in _COUNTS}
    for text in (text for pair in metadata.items() for text in pair):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise damaged(where, f"metadata {text!r} is not Unicode text") from error
    if metadata.get("tails") not in ("implicit", "indexed"):
        raise damaged(where, f"metadata tails is {metadata.get('tails')!r}")
    value_min = metadata.get("value_min", "")
    if not _SIGNED_DECIMAL.fullmatch(value_min) or not -(2**63) <= int(value_min) < 2**63:
        raise damaged(where, f"metadata value_min is {value_min!r}")
    return Header(
        keywords=count["keywords"],
        nodes=count["nodes"],
        alphabet_size=count["alphabet_size"],
        vocab_size=count["vocab_size"],
        max_length=count["max_length"],
        tails=metadata["tails"],
        store_tokens=count["store_tokens"],
        store_tails=count["store_tails"],
        store=Coding(*(count[f"store_{name}"] for name in Coding._fields)),
        values=count["values"],
        value_min=int(value_min),
        value_bits=count["value_bits"],
        level_table=level_table,
        tags={
            key.removeprefix("tag."): value
            for key, value in metadata.items()
            if key.startswith("tag.")
        },
        digest=metadata["digest"],
    )


def checksums(document: Document, where: str) -> dict[str, str]:
    """The checksum of each section as a header states it."""
    result = {}
    for section in SECTIONS:
        value = document[_METADATA].get(f"checksum.{section.name}", "")
        if not _DIGEST.fullmatch(value):
            raise damaged(where, f"metadata checksum.{section.name} is {value!r}")
        result[section.name] = value
    return result


def check_layout(
    document: Document, header: Header, lengths: Mapping[str, int], where: str
) -> None:
    """Raise unless sections are there, of the size, dtype and place that `lengths` implies.

    `lengths` are the elements that follow from the counts of the header. After this nothing is
    left in it that `encode` would not write. O(1).
    """
    metadata = document[_METADATA]
    for name, entry in _entries(lengths).items():
        if name not in document:
            raise damaged(where, f"section {name} is missing")
        length = _count(metadata, f"length.{name}", where)
        if length != lengths[name]:
            cause = f"section {name} has {length} elements where the counts imply {lengths[name]}"
            raise damaged(where, cause)
        # As text: 1, 1.0 and true are equal in Python.
        if _show(document[name]) != _show(entry):
            cause = f"section {name} is {_show(document[name])} where {_show(entry)} is right"
            raise damaged(where, cause)
    expected = _document(header, checksums(document, where), lengths)
    expected[_METADATA]["digest"] = header.digest
    unknown = {*document, *metadata} - {*expected, *expected[_METADATA]}
    if unknown:
        raise damaged(where, f"the header has {sorted(unknown)}, unknown in version {VERSION}")
    if _spell(document) != _spell(expected):
        raise damaged(where, f"the header has something that version {VERSION} has not")


def _show(value: object) -> str:
    """Canonical JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _count(metadata: Mapping[str, str], key: str, where: str) -> int:
    """A count of the metadata: a plain decimal below 2^63."""
    text = metadata.get(key, "")
    if not _DECIMAL.fullmatch(text) or int(text) >= 2**63:
        raise damaged(where, f"metadata {key} is {text!r}; a number below 2^63 is right")
    return int(text)
