"""The reference builder's files, read back by the rules of the format page."""

from __future__ import annotations

import random

import pytest

from flashtrie.formats.reader import open_artifact
from tests.formats.keysets import TINY, mixed, smallest
from tests.formats.walk import keywords
from tests.reference_builder import Row, reference_artifact

SETS: dict[str, list[Row]] = {
    "tiny": TINY,
    "one": [((0,), 7)],
    "prefixes": [((1,), 3), ((1, 2), 2), ((1, 2, 3), 1)],
    "mixed": mixed(rows=400, vocab=60),
    "wide": mixed(rows=400, vocab=2**31, longest=5),
    "tails": [((n, 1, *range(n % 9)), -n) for n in range(200)],
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("tails", ["auto", "implicit", "indexed"])
@pytest.mark.parametrize("low_bits", [None, 4, 16])
def test_read_back(tmp_path, name, tails, low_bits):
    path = tmp_path / "x.trie"
    rows = SETS[name]
    reference_artifact(path, rows, low_bits, tails, tags={"k": "v"})
    with open_artifact(path) as artifact:
        read = keywords(artifact)
        header = artifact.header
        rank = {token: r for r, token in enumerate(artifact.sections["alphabet"].tolist())}
    assert dict(read) == smallest(rows) and len(read) == len(smallest(rows))
    assert header.vocab_size == max(rank) + 1
    assert header.tags == {"k": "v"}
    if tails != "auto":
        assert header.tails == tails
    if name == "mixed":
        counts = dict.fromkeys(rank, 0)
        for tokens, _ in rows:
            for token in tokens:
                counts[token] += 1
        assert list(rank) == sorted(rank, key=lambda token: (-counts[token], token))


def test_any_order_gives_the_same_bytes(tmp_path):
    rows = mixed(rows=500)
    files = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        path = tmp_path / f"{seed}.trie"
        reference_artifact(path, rows)
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_auto_takes_the_smaller_kind(tmp_path):
    repeated = [((n, 7, 8, 9, 10, 11), None) for n in range(1000)]
    distinct = [((n, n + 1, n + 2), None) for n in range(2000)]
    for rows, kind in ((repeated, "indexed"), (distinct, "implicit")):
        sizes = {}
        for tails in ("implicit", "indexed", "auto"):
            path = tmp_path / f"{kind}-{tails}.trie"
            reference_artifact(path, rows, tails=tails)
            sizes[tails] = path.stat().st_size
            with open_artifact(path) as artifact:
                if tails == "auto":
                    assert artifact.header.tails == kind
        assert sizes["auto"] == min(sizes.values())
