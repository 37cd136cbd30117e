"""Text columns to token ids, by a Hugging Face tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import types

from flashtrie.builder.batches import Array, Place
from flashtrie.formats.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Encoding

# Encoded at a time, at most: an Encoding takes about a kilobyte, and 100 bytes a token more.
_STRINGS, _CHARACTERS = 4096, 1 << 18


class TextEncoder:
    """A tokenizer without special tokens, truncation and padding. Loading takes up to seconds.

    Encodes on all cores, in threads of its own (TOKENIZERS_PARALLELISM=false stops that); safe to
    share between threads. Raises UsageError without the extra `text`, or where the file is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read a tokenizer.json; `path` is kept."""
        self.path = name = os.fspath(path)
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UsageError(
                "--tokenizer needs the package tokenizers",
                hint="Install the extra: pip install 'flashtrie[text]' from the checkout or wheel",
            ) from error
        if not os.path.isfile(name):
            raise UsageError("no such tokenizer file", name)
        try:
            self._tokenizer = Tokenizer.from_file(name)
        except Exception as error:  # the library raises nothing narrower
            raise UsageError("not a tokenizer.json", name, str(error)) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, strings: Array, place: Place) -> Array:
        """Lists of uint32 ids of a string array, null where it is null."""
        if types.is_dictionary(strings.type):
            strings = strings.dictionary_decode()
        lengths = [0]
        parts = [np.empty(0, np.uint32)]
        for start in range(0, len(strings), _STRINGS):
            texts = _texts(
                strings.slice(start, _STRINGS), place._replace(first_row=place.first_row + start)
            )
            for some in _pieces(texts):
                encodings: list[Encoding] = self._tokenizer.encode_batch_fast(
                    some, add_special_tokens=False
                )
                ids = [encoding.ids for encoding in encodings]
                lengths += map(len, ids)
                parts.append(np.fromiter(chain.from_iterable(ids), np.uint32))
        offsets: Array = pa.array(np.cumsum(lengths, dtype=np.int64))
        tokens: Array = pa.array(np.concatenate(parts))
        nulls = strings.is_null() if strings.null_count else None
        return pa.LargeListArray.from_arrays(offsets, tokens, mask=nulls)


def _pieces(texts: list[str]) -> Iterator[list[str]]:
    """The texts in order, in lists that are encoded at a time: a long one is alone in its."""
    piece: list[str] = []
    size = 0
    for text in texts:
        if piece and size + len(text) > _CHARACTERS:
            yield piece
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield piece


def _texts(strings: Array, place: Place) -> list[str]:
    """Python strings, empty for null."""
    try:
        return [text or "" for text in strings.to_pylist()]
    except UnicodeDecodeError:
        for row, value in enumerate(strings):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise place.error(row, f"the text is not UTF-8 ({error.reason})") from error
        raise
