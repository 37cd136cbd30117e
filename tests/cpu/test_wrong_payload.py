"""A file that opens, whatever its payload: no access outside it, and no endless loop.

The file lies between two pages that cannot be read, so that an access outside is a crash.
"""

from __future__ import annotations

import numpy as np
import pytest

import flashtrie
from flashtrie.cpu.view import Mapped
from flashtrie.formats.search import SearchResult
from tests.fuzz.guard import Guarded

TAILS = ["implicit", "indexed"]
LOW_BITS = [None, 4]


def keywords(rng):
    tokens = np.minimum(rng.zipf(1.3, (1500, 7)), 2**20)
    lengths = rng.integers(1, 8, len(tokens))
    rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]
    return rows + [(3, t, t) for t in range(700)] + [(9,) * 300, (9,) * 299]


def wrong_payloads(data, first, rng):
    """The file with other payloads behind the level table, which is proved at opening."""
    size = len(data) - first
    yield bytes(size)
    yield b"\xff" * size
    for _ in range(3):
        yield rng.bytes(size)
    for share in (0.001, 0.05):
        noisy = np.frombuffer(data[first:], np.uint8).copy()
        places = rng.random(size) < share
        noisy[places] = rng.integers(0, 256, int(places.sum()))
        yield noisy.tobytes()


def use(trie, rows, rng):
    """Everything that reads the payload."""
    lookups = trie.lookup(rows[::5] + [(1, 2, 3, 4, 5, 6, 7, 8, 9)])
    assert ((lookups >= -1) & (lookups < len(trie))).all()
    tokens, offsets = trie.keywords(0, len(trie))
    assert (np.diff(offsets) <= trie.artifact.header.max_length).all()
    some = rng.integers(0, len(trie), 50)
    assert len(trie.keywords_of(some)[1]) == 51
    trie.values(some)
    for key_id in some[:5].tolist():
        trie.sharing_ranges(key_id)
    alphabet = np.unique([token for row in rows for token in row])
    for width, beam_width in ((3, 1), (200, 50), (1000, 2000)):
        proposed = rng.choice(alphabet, (2, 9, width))
        logprobs = -rng.integers(0, 30, proposed.shape).astype(np.float32)
        result = trie.search(proposed, logprobs, beam_width=beam_width)
        check_result(result, len(trie), beam_width)


def check_result(result: SearchResult, keywords: int, beam_width: int) -> None:
    assert (np.diff(result.offsets) <= beam_width).all()
    assert ((result.key_ids >= 0) & (result.key_ids < keywords)).all()
    assert np.isfinite(result.scores).all()
    assert result.token_offsets[-1] == len(result.tokens)


@pytest.mark.parametrize("low_bits", LOW_BITS)
@pytest.mark.parametrize("tails", TAILS)
def test_wrong_payloads_do_no_harm(build_trie, tails, low_bits, tmp_path):
    rng = np.random.default_rng(4)
    rows = keywords(rng)
    with build_trie(rows, list(range(len(rows))), tails=tails, low_bits=low_bits) as trie:
        artifact = trie.artifact
        first = artifact.offsets["alphabet"]
        data = artifact.mapped.tobytes()
        use(trie, rows, rng)
    for i, payload in enumerate(wrong_payloads(data, first, rng)):
        path = tmp_path / f"{i}.trie"
        path.write_bytes(data[:first] + payload)
        with flashtrie.open(path) as trie:
            artifact = trie.artifact
            for at_end in (True, False):
                guarded = Guarded(path.read_bytes(), at_end)
                trie._mapped = Mapped(
                    guarded.array, artifact.header, artifact.parameters, artifact.offsets
                )
                use(trie, rows, rng)
