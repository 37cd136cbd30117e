"""Key sets that share in every way and queries against them, by Hypothesis or from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tests.oracle import Keyword, Oracle

# Both sides of every width that tokens are stored in, and the largest token.
EDGES = (0, 1, 255, 256, 65535, 65536, 65537, 2**21, 2**31 - 1, 2**31, 2**31 + 5, 2**32 - 2)
LOW_BITS = (None, 4, 16)
TAILS = ("implicit", "indexed")
TOKEN_DTYPES = (np.int32, np.int64, np.uint32)

# Few values with exact float32 sums, so that ties are the rule; -inf and a negative zero with them.
TIED = (0.0, -0.0, -0.5, -1.0, -1.5, -2.0, 0.5, -np.inf)
# Unequal terms with equal sums, sums that overflow, and quotients that become zero.
ROUNDED = (0.0, -1.0, 1.0, 0.5, -2.0, 2.0**24, -(2.0**24), 3e38, -3e38, 1e-45, -1e-45)


class Rows(NamedTuple):
    """What is built: rows in order, duplicates included, and a value per row or None."""

    rows: Sequence[Keyword]
    values: Sequence[int] | None

    def oracle(self, vocab_size: int | None = None) -> Oracle:
        return Oracle(self.rows, self.values, vocab_size)


class Query(NamedTuple):
    """A batch as `Trie.search` takes it: [Q, T, K], [Q, T, K], [Q, T + 1] or None."""

    tokens: npt.NDArray[Any]
    logprobs: npt.NDArray[np.float32]
    end_logprobs: npt.NDArray[np.float32] | None


@st.composite
def alphabets(draw: st.DrawFn) -> list[int]:
    """The tokens of a key set: one, two, a dense few, the edges of widths, or any."""
    return draw(
        st.one_of(
            st.just([0]),
            st.just([0, 1]),
            st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True),
            st.lists(st.sampled_from([*EDGES]), min_size=1, max_size=12, unique=True),
            st.lists(st.integers(0, 2**32 - 2), min_size=1, max_size=12, unique=True),
        )
    )


@st.composite
def key_rows(draw: st.DrawFn, max_rows: int = 30, valued: bool | None = None) -> Rows:
    """Rows of keywords that are prefixes of others, share tails, and repeat."""
    token = st.sampled_from(draw(alphabets()))
    tails = draw(st.lists(st.lists(token, min_size=1, max_size=6), min_size=1, max_size=3))
    rows: list[Keyword] = [tuple(draw(st.lists(token, min_size=1, max_size=8)))]
    for _ in range(draw(st.integers(0, max_rows - 1))):
        old = draw(st.sampled_from(rows))
        cut = draw(st.integers(1, len(old)))
        rows.append(
            draw(
                st.one_of(
                    st.lists(token, min_size=1, max_size=8).map(tuple),
                    st.just(old),
                    st.just(old[:cut]),
                    st.builds(lambda t, c=cut, o=old: o[:c] + (t,), token),
                    st.builds(lambda t, c=cut, o=old: o[:c] + tuple(t), st.sampled_from(tails)),
                    st.builds(lambda t, tail: (t, *tail), token, st.sampled_from(tails)),
                )
            )
        )
    if valued is None:
        valued = draw(st.booleans())
    if not valued:
        return Rows(rows, None)
    value = st.one_of(
        st.integers(-3, 3), st.integers(-(2**40), 2**40), st.sampled_from([2**63 - 1, -(2**63)])
    )
    return Rows(rows, draw(st.lists(value, min_size=len(rows), max_size=len(rows))))


@st.composite
def large_key_rows(draw: st.DrawFn) -> Rows:
    """Some thousand rows from a seed, so that bitmaps cross the blocks of their directories.

    A step takes one of `fan_out` successors of the token before, so prefixes and tails recur.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.sampled_from([63, 65, 511, 513, 3000]))
    length = draw(st.sampled_from([1, 2, 3, 8]))
    fan_out = draw(st.sampled_from([1, 2, 5, 40]))
    first = draw(st.sampled_from([1, 3, 700, 5000]))
    scale = draw(st.sampled_from([1, 97, 400_009]))
    tokens = np.zeros((rows, length), np.int64)
    tokens[:, 0] = rng.integers(0, first, rows)
    for j in range(1, length):
        tokens[:, j] = (tokens[:, j - 1] * 31 + rng.integers(0, fan_out, rows) * 7) % 10_007
    lengths = rng.integers(1, length + 1, rows)
    keywords = [tuple((row[:n] * scale).tolist()) for row, n in zip(tokens, lengths, strict=True)]
    values = rng.integers(-(2**33), 2**33, rows).tolist() if draw(st.booleans()) else None
    return Rows(keywords, values)


def foreign_tokens(oracle: Oracle, dtype: Any) -> list[int]:
    """Tokens to propose that no keyword has, as far as `dtype` holds them.

    They stand beside the ends of the vocabulary and of the integer types, and 2^32 away from tokens
    of the alphabet, where a cast without a check would find them.
    """
    near = [oracle.vocab_size - 1, oracle.vocab_size, oracle.vocab_size + 1]
    near += [token + 1 for token in oracle.alphabet[:4]]
    wrapped = [token + shift for token in oracle.alphabet[:4] for shift in (2**32, -(2**32), 2**40)]
    tokens = [-1, -(2**31), 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, -(2**63), *near, *wrapped]
    info = np.iinfo(dtype)
    return [token for token in tokens if info.min <= token <= info.max]


@st.composite
def queries(
    draw: st.DrawFn,
    oracle: Oracle,
    max_queries: int = 3,
    max_steps: int = 7,
    max_width: int = 8,
) -> Query:
    """Batches of proposals: mostly of the alphabet; repeats, ties, absent and foreign tokens."""
    dtype: Any = draw(st.sampled_from(TOKEN_DTYPES))
    known = [token for token in oracle.alphabet if token <= np.iinfo(dtype).max]
    token = st.sampled_from(foreign_tokens(oracle, dtype))
    if known:
        token = st.one_of(st.sampled_from(known), st.sampled_from(known), token)
    exact = st.floats(-50, 5, width=32)
    logprob = draw(
        st.sampled_from(
            [st.sampled_from(TIED), st.sampled_from(ROUNDED), st.one_of(st.just(-np.inf), exact)]
        )
    )
    q = draw(st.integers(1, max_queries))
    t = draw(st.integers(1, max_steps))
    k = draw(st.integers(1, max_width))

    def array(element: st.SearchStrategy[Any], shape: tuple[int, ...], dtype: Any) -> Any:
        count = int(np.prod(shape))
        elements = draw(st.lists(element, min_size=count, max_size=count))
        return np.array(elements, dtype).reshape(shape)

    tokens = array(token, (q, t, k), dtype)
    logprobs = array(logprob, (q, t, k), np.float32)
    if draw(st.booleans()):
        # The log-probability of an absent token is not read.
        absent = (tokens.astype(object) < 0) | (tokens.astype(object) >= oracle.vocab_size)
        logprobs[absent] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
    end = None
    if draw(st.booleans()):
        end = array(logprob, (q, t + 1), np.float32)
        end[:, 0] = draw(st.sampled_from([np.nan, np.inf, 0.0]))
    return Query(tokens, logprobs, end)


search_options = st.fixed_dictionaries(
    {
        "beam_width": st.sampled_from([1, 2, 3, 5, 100]),
        "top_k": st.sampled_from([None, None, 1, 2, 3, 50]),
        "length_penalty": st.sampled_from([0.0, 0.0, 1.0, 0.6, -0.7, 2.5]),
    }
)


def walk_query(oracle: Oracle, rng: np.random.Generator, steps: int, width: int) -> Query:
    """One query drawn fast: each step proposes tokens of keywords at that position, and noise.

    Log-probabilities are small multiples of 0.25, so that many candidates tie.
    """
    columns: list[list[int]] = [[] for _ in range(steps)]
    for i in rng.integers(0, len(oracle), 4 * width):
        for position, token in enumerate(oracle.keywords[i][:steps]):
            columns[position].append(token)
    tokens = np.empty((1, steps, width), np.int64)
    for position, column in enumerate(columns):
        noise = rng.integers(-2, oracle.vocab_size + 2, width)
        likely = rng.choice(column, width) if column else noise
        tokens[0, position] = np.where(rng.random(width) < 0.8, likely, noise)
    logprobs = (-0.25 * rng.integers(0, 24, tokens.shape)).astype(np.float32)
    # About neutral to length, as else the best results are all short and beams do not matter.
    end = (0.25 * rng.integers(-8, 8, (1, steps + 1)) + 3 * np.arange(steps + 1)).astype(np.float32)
    return Query(tokens, logprobs, end)


def key_set(kind: str, rows: int, seed: int = 0) -> list[Keyword]:
    """Keywords with few (narrow) or many (wide) successors of a token, lengths 1 to 8."""
    rng = np.random.default_rng(seed)
    fan_out = {"wide": 3000, "narrow": 20}[kind]
    tokens = np.zeros((rows, 8), np.int64)
    tokens[:, 0] = rng.zipf(1.3, rows) % 5000
    for j in range(1, 8):
        step = (rng.random(rows) ** 3 * fan_out).astype(np.int64)
        tokens[:, j] = (tokens[:, j - 1] * 31 + step * 7) % 20_011
    lengths = rng.integers(1, 9, rows)
    return [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]


def proposals(
    rows: Sequence[Keyword], count: int, width: int, *, tied: bool, seed: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """A batch near the keywords of a `key_set`, as `Trie.search` takes it by name; six steps.

    Proposals are in falling order for the first half; there are few scores where `tied`.
    """
    rng = np.random.default_rng(seed)
    steps = 6
    tokens = np.zeros((count, steps, width), np.int64)
    for q in range(count):
        near = [rows[i] for i in rng.integers(0, len(rows), 4 * width)]
        for step in range(steps):
            here = [keyword[step] for keyword in near if len(keyword) > step] or [0]
            likely = rng.choice(here, width)
            noise = rng.integers(-2, 20_020, width)
            tokens[q, step] = np.where(rng.random(width) < 0.8, likely, noise)
    logprobs = -rng.gamma(2.0, 2.0, tokens.shape)
    if tied:
        logprobs = np.round(logprobs)
    half = count - count // 2
    logprobs[:half] = -np.sort(-logprobs[:half], axis=2)
    end = -rng.random((count, steps + 1)) * 4
    end = np.round(end) if tied else end
    arrays = {"tokens": tokens, "logprobs": logprobs, "end_logprobs": end}
    return {name: a.astype(np.float32) if name != "tokens" else a for name, a in arrays.items()}
