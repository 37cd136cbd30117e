"""What the host fills in is what the kernels read. No GPU is needed."""

from __future__ import annotations

import re

from flashtrie.gpu import arguments
from flashtrie.gpu.compiler import FOLDER, source


def fields(header: str, struct: str) -> list[str]:
    """Names of the fields of a struct, in order; a field that is a struct has its fields' names."""
    text = (FOLDER / header).read_text()
    body = re.search(rf"struct {struct} {{\n(.*?)\n}};", text, re.DOTALL)
    assert body is not None
    lines = [line.split("//")[0].strip() for line in body[1].split("\n")]
    names = []
    for declaration in filter(None, " ".join(lines).split(";")):
        _, *declared = re.split(r"^(?:const )?\w+\*? ", declaration.strip())
        names += [name.strip() for name in declared[0].split(",")]
    return names


def test_levels():
    # A bitmap that has the name of a count is told from it.
    renamed = {"inner_offset": "inner_bits"}
    expected = [renamed.get(n, n.removesuffix("_offset")) for n in arguments.LEVEL_FIELDS]
    assert fields("trie.cuh", "Level") == expected


def test_tries():
    assert fields("trie.cuh", "Trie") == list(arguments.TRIE_FIELDS)


def test_searches():
    expected = ["trie", "tokens", *arguments.SEARCH_FIELDS[len(arguments.TOKEN_FIELDS) :]]
    assert fields("search.cuh", "Search") == expected


def test_headers_are_put_in_once():
    text = source("search.cu")
    assert '#include "' not in text
    assert text.count("struct Level {") == text.count("struct Block {") == 1
