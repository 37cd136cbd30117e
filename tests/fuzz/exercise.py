"""Everything that can be asked of an artifact, right or wrong, and what came of it.

A right artifact answers `answers` always alike. A wrong one may be refused at opening, or found by
verify; its answers may be others, but are always of the form that was promised.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

import flashtrie
from flashtrie.formats.errors import ArtifactError, NewerFormatError
from flashtrie.formats.info import describe
from flashtrie.formats.invariants import check
from flashtrie.formats.search import SearchResult
from tests.formats import walk

_MOST_KEYWORDS = 2000  # that are decoded of any artifact
_MOST_WALKED = 600  # keywords, and levels, of an artifact that the slow walk reads
_MOST_LEVELS = 100

# Outcomes.
REFUSED = "refused at open"
FOUND_SAME = "found by verify, same answers"
FOUND_OTHER = "found by verify, other answers"
UNCHANGED = "the same file"
RIGHT = "another right artifact"  # its checksums were made right, and so is all the rest
ALLOWED = (REFUSED, FOUND_SAME, FOUND_OTHER, UNCHANGED, RIGHT)


class Wrong(Exception):
    """An answer that no artifact may give, or that verify should have told."""


class Probe(NamedTuple):
    """What an artifact and its mutants are asked."""

    tokens: npt.NDArray[np.uint32]  # keywords and others, flat
    offsets: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]  # any numbers: key ids modulo the keywords
    queries: list[dict[str, Any]]  # arguments of Trie.search
    logits: npt.NDArray[np.float32]


def make_probe(trie: flashtrie.Trie) -> Probe:
    """Keywords of a right artifact with and without a change, and proposals of its tokens."""
    rng = np.random.default_rng(0)
    some = rng.permutation(len(trie))[:100]
    rows = [row.tolist() for row in (trie.keyword(int(i)) for i in some)]
    others = [row[:-1] for row in rows[:20]] + [[*row, row[0]] for row in rows[20:40]]
    others += [row[::-1] for row in rows[40:60]] + [[], [2**32 - 1], [0] * 4096]
    every = rows + others
    offsets = np.cumsum([0, *map(len, every)])
    flat = np.array([token for row in every for token in row], np.uint32)
    # At each step, tokens that keywords have there, and any.
    deep = max((row for row in rows), key=len)
    alphabet = np.asarray(trie.artifact.sections["alphabet"])
    queries: list[dict[str, Any]] = []
    for steps, width, beam_width in ((3, 1, 1), (5, 60, 20), (min(len(deep), 12), 400, 700)):
        tokens = rng.choice(alphabet, (2, steps, width))
        for step in range(steps):
            here = [row[step] for row in rows if len(row) > step]
            count = min(len(here), width)
            tokens[:, step, :count] = here[:count]
        logprobs = -0.25 * rng.integers(0, 30, tokens.shape)
        queries.append({"tokens": tokens, "logprobs": logprobs.astype(np.float32)})
        queries[-1]["beam_width"] = beam_width
    logits = rng.normal(size=(1, 4, 90)).astype(np.float32)
    return Probe(flat, offsets, rng.integers(0, 2**62, 40), queries, logits)


def use(path: Path, probe: Probe, expected: bytes, *, changed: bool, sealed: bool) -> str:
    """Open a file, ask it everything, verify it: the outcome. Raises Wrong, or what it raises.

    `expected` are the answers of the right file; `changed` and `sealed` say how this one differs.
    """
    try:
        trie = flashtrie.open(path)
    except (ArtifactError, NewerFormatError) as error:
        str(error).encode()  # fit to be printed
        return REFUSED
    with trie:
        json.dumps(describe(trie.artifact))
        same = answers(trie, probe) == expected
        if not all(c.ok for c in check(trie.artifact, threads=1)):
            return FOUND_SAME if same else FOUND_OTHER
        if not changed:
            if not same:
                raise Wrong("the same file gives other answers")
            return UNCHANGED
        if not sealed:
            raise Wrong("a file that was changed passes verify")
        _check_right(trie, probe)
        return RIGHT


def answers(trie: flashtrie.Trie, probe: Probe) -> bytes:
    """A digest of the answers, each of which has the form that was promised."""
    digest = xxhash.xxh3_128()
    n = len(trie)
    longest = trie.artifact.header.max_length

    def add(*arrays: npt.NDArray[Any] | None) -> None:
        for array in arrays:
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())

    found = trie.lookup_flat(probe.tokens, probe.offsets)
    _demand(((found >= -1) & (found < n)).all(), "a key id out of range")
    places = probe.places % n
    for tokens, offsets in (
        trie.keywords(0, min(n, _MOST_KEYWORDS)),
        trie.keywords(max(n - 30, 0), n),
        trie.keywords_of(places),
    ):
        lengths = np.diff(offsets)
        _demand(((lengths > 0) & (lengths <= longest)).all(), "a keyword's length")
        _demand(len(tokens) == offsets[-1], "tokens and offsets differ")
        add(tokens, offsets)
    add(found, trie.values(places), *itertools.islice(trie, 50))
    for key_id in places[:3].tolist():
        add(trie.keyword(key_id), *trie.sharing_ranges(key_id))
        trie.value(key_id)
    for query in probe.queries:
        result = trie.search(**query, threads=1)
        demand_result(result, n, query["tokens"].shape[1], query["beam_width"])
        add(*_arrays(result))
    result = trie.search_logits(probe.logits, beam_width=9, top_k=30, threads=1)
    demand_result(result, n, probe.logits.shape[1], 9)
    add(*_arrays(result))
    return digest.digest()


def touch(trie: flashtrie.Trie | Any) -> None:
    """A little of everything, of an artifact of which nothing is known."""
    n = len(trie)
    first, _ = trie.keywords(0, min(n, 20))
    trie.lookup([first.tolist()[:5000], [0], [1, 2, 3]])
    places = np.array([0, n // 2, n - 1])
    trie.keywords_of(places)
    trie.values(places)
    trie.sharing_ranges(n - 1)
    alphabet = trie.artifact.sections["alphabet"]
    tokens = alphabet[np.arange(60) * 7919 % len(alphabet)].reshape(1, 3, 20)
    logprobs = -np.arange(60, dtype=np.float32).reshape(tokens.shape) % 7
    for beam_width in (2, 40):
        result = trie.search(tokens, logprobs, beam_width=beam_width, threads=1)
        demand_result(result, n, 3, beam_width)


def _arrays(result: SearchResult) -> list[npt.NDArray[Any] | None]:
    return [result.offsets, result.key_ids, result.scores, result.tokens, result.values]


def demand_result(result: SearchResult, keywords: int, steps: int, beam_width: int) -> None:
    """Raise Wrong unless a search's result has the form that was promised."""
    _demand((np.diff(result.offsets) <= beam_width).all(), "more results than beams")
    in_range = (result.key_ids >= 0) & (result.key_ids < keywords)
    _demand(in_range.all(), "a result's key id out of range")
    _demand(np.isfinite(result.scores).all(), "a score that is not finite")
    lengths = np.diff(result.token_offsets)
    _demand((lengths == result.lengths).all(), "lengths and offsets of tokens differ")
    _demand(((lengths > 0) & (lengths <= steps)).all(), "a result's length")
    _demand(result.token_offsets[-1] == len(result.tokens), "tokens of results")


def _check_right(trie: flashtrie.Trie, probe: Probe) -> None:
    """What verify has passed is a key set that all engines and the walk by the format agree on."""
    n = len(trie)
    tokens, offsets = trie.keywords(0, n)
    rows = [tuple(row.tolist()) for row in np.split(tokens, offsets[1:-1])]
    _demand(len(set(rows)) == n, "verify passes, and two keywords are equal")
    found = trie.lookup_flat(tokens, offsets)
    _demand((found == np.arange(n)).all(), "verify passes, and lookups do not find the keywords")
    other_tokens, other_offsets = trie.keywords_of(np.arange(n))
    same = np.array_equal(other_tokens, tokens) and np.array_equal(other_offsets, offsets)
    _demand(same, "verify passes, and keywords differ")
    for query in probe.queries:
        result = trie.search(**query, threads=1)
        found = trie.lookup_flat(result.tokens, result.token_offsets)
        _demand((found == result.key_ids).all(), "verify passes, and a search finds what is not")
    if n <= _MOST_WALKED and trie.artifact.header.levels <= _MOST_LEVELS:
        walked = walk.keywords(trie.artifact)
        _demand([row for row, _ in walked] == rows, "verify passes, and the walk differs")
        values = trie.values(np.arange(n))
        if values is not None:
            same = [value for _, value in walked] == values.tolist()
            _demand(same, "verify passes, and values differ")


def _demand(holds: Any, what: str) -> None:
    if not holds:
        raise Wrong(what)
