"""`Trie`: an open artifact with everything that can be asked of it on the CPU."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from flashtrie.cpu.decode import decode_chosen, decode_keywords, decode_values
from flashtrie.cpu.logits import logit_proposals
from flashtrie.cpu.lookup import find_keywords, make_group
from flashtrie.cpu.neighbours import sharing_ranges
from flashtrie.cpu.ranks import Ranks, RankTable
from flashtrie.cpu.search import Searcher
from flashtrie.cpu.threads import Workers
from flashtrie.cpu.view import Mapped, View
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.errors import UsageError
from flashtrie.formats.reader import Artifact, open_artifact
from flashtrie.formats.search import (
    ABSENT,
    DEFAULT_BEAM_WIDTH,
    DEFAULT_LOGITS_TOP_K,
    SearchInput,
    SearchResult,
    SearchStats,
    as_tokens,
    check_end_logprobs,
    check_limits,
    check_logits,
    check_penalties,
    check_proposals,
)

_LOOKUP_CHUNK = 1 << 14  # keywords a thread takes at a time
_ITERATION_CHUNK = 1 << 12
_TOKENS_GUESS = 8  # of a keyword, before it is decoded
_NO_TOKENS = np.zeros(0, np.uint32)


class Trie:
    """A key set in an open artifact.

    Opening costs O(levels); the first lookup or search also inverts the alphabet, in O(V). Any
    number of threads may call. Each call first looks at the file, and raises ArtifactChanged if it
    was changed in place since it was opened.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Take over an open artifact; `open_trie` calls this."""
        self.artifact = artifact
        header = artifact.header
        self._mapped = Mapped(artifact.mapped, header, artifact.parameters, artifact.offsets)
        self._workers = Workers()
        self._lock = threading.Lock()
        self._lazy_ranks: RankTable | None = None
        self._lazy_searcher: Searcher | None = None

    def __len__(self) -> int:
        """The number of keywords."""
        return self.artifact.header.keywords

    def close(self) -> None:
        """Close the artifact; calls that run in other threads go on to their end."""
        self._workers.close()
        self.artifact.close()

    def __enter__(self) -> Self:
        """Close at the end of a `with` block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    @property
    def view(self) -> View:
        """What kernels take, valid while this trie is open."""
        return self._mapped.view

    @property
    def ranks(self) -> Ranks:
        """The ranks of tokens for kernels, made with the first use."""
        return self._ranks().ranks

    def lookup(self, keywords: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
        """Key ids of token sequences, -1 where absent. `lookup_flat` is the fast form."""
        offsets = np.zeros(len(keywords) + 1, np.int64)
        np.cumsum([len(keyword) for keyword in keywords], out=offsets[1:])
        flat = itertools.chain.from_iterable(keywords)
        tokens = (int(t) if 0 <= t < ABSENT else ABSENT for t in flat)
        return self.lookup_flat(np.fromiter(tokens, np.uint32, int(offsets[-1])), offsets)

    def lookup_flat(
        self, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64], threads: int = 1
    ) -> npt.NDArray[np.int64]:
        """Key ids of keywords tokens[offsets[i]:offsets[i + 1]], -1 where absent: int64 [n].

        tokens of any integer dtype. Some hundred nanoseconds a keyword and thread.
        """
        self.artifact.check_unchanged()
        offsets = np.ascontiguousarray(offsets, np.int64)
        tokens = np.asarray(tokens)
        if tokens.dtype.kind not in "iu":
            raise UsageError(f"tokens of dtype {tokens.dtype}", cause="tokens are integers")
        _check_offsets(offsets, len(tokens))
        flat = as_tokens(tokens, self.artifact.header.vocab_size)
        found = np.empty(len(offsets) - 1, np.int64)
        view, ranks = self._mapped.view, self._ranks().ranks

        def find(chunk: int) -> None:
            first = chunk * _LOOKUP_CHUNK
            stop = min(first + _LOOKUP_CHUNK, len(found))
            group = make_group()
            find_keywords(
                view,
                ranks,
                flat.ctypes.data,
                offsets.ctypes.data,
                first,
                stop,
                found.ctypes.data,
                group.ctypes.data,
            )

        self._workers.run(find, -(-len(found) // _LOOKUP_CHUNK), threads)
        return found

    def keyword(self, key_id: int) -> npt.NDArray[np.uint32]:
        """The tokens of one keyword. Raises IndexError for a key id that there is not."""
        if not 0 <= key_id < len(self):
            raise IndexError(f"key id {key_id}: there are {len(self):,} keywords")
        return self.keywords(key_id, key_id + 1)[0]

    def keywords(
        self, start: int, stop: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Flat tokens and offsets [stop - start + 1] of the keywords with key ids in a range.

        Some ten nanoseconds a token: the trie is walked in order.
        """
        self.artifact.check_unchanged()
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"key ids {start} to {stop}: there are {len(self):,} keywords")

        def decode(done: int, tokens: npt.NDArray[np.uint32], here: npt.NDArray[np.int64]) -> Any:
            return decode_keywords(self._mapped.view, start + done, stop, tokens, here)

        return self._decode(stop - start, decode)

    def keywords_of(
        self, key_ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The same for any key ids, in the order given: about a microsecond a keyword."""
        self.artifact.check_unchanged()
        key_ids = self._checked(key_ids)

        def decode(done: int, tokens: npt.NDArray[np.uint32], here: npt.NDArray[np.int64]) -> Any:
            return decode_chosen(self._mapped.view, key_ids[done:], tokens, here)

        return self._decode(len(key_ids), decode)

    def _decode(
        self, count: int, decode: Callable[[int, Any, Any], int]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Collect what `decode` fits into arrays that grow: keywords from `done` on."""
        room = max(count * _TOKENS_GUESS, self.artifact.header.max_length)
        offsets = np.zeros(count + 1, np.int64)
        parts: list[npt.NDArray[np.uint32]] = []
        done = 0
        while done < count:
            tokens = np.empty(room, np.uint32)
            here = np.zeros(count - done + 1, np.int64)
            more = decode(done, tokens, here)
            offsets[done : done + more + 1] = here[: more + 1] + offsets[done]
            parts.append(tokens[: here[more]])
            done += more
            room *= 2
        return (parts[0] if len(parts) == 1 else np.concatenate([_NO_TOKENS, *parts])), offsets

    def sharing_ranges(self, key_id: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which keywords share the first 1, 2, ... tokens of one: key id ranges, [prefixes, D].

        For each of its prefixes that others have too, on each level from `starts` up to `stops`.
        O(D) a prefix.
        """
        keyword = self.keyword(key_id)
        levels = self.artifact.header.levels
        starts, stops = np.zeros((2, min(len(keyword), levels), levels), np.int64)
        n = sharing_ranges(self._mapped.view, self._ranks().ranks, keyword, starts, stops)
        return starts[:n], stops[:n]

    def __iter__(self) -> Iterator[npt.NDArray[np.uint32]]:
        """The keywords in the order of their key ids."""
        for start in range(0, len(self), _ITERATION_CHUNK):
            tokens, offsets = self.keywords(start, min(start + _ITERATION_CHUNK, len(self)))
            yield from np.split(tokens, offsets[1:-1])

    def value(self, key_id: int) -> int | None:
        """The value of one keyword, None where the artifact has none."""
        values = self.values(np.array([key_id], np.int64))
        return None if values is None else int(values[0])

    def values(self, key_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The values of keywords, None where the artifact has none. Raises IndexError."""
        self.artifact.check_unchanged()
        key_ids = self._checked(key_ids)
        if not self.artifact.header.values:
            return None
        values = np.empty(len(key_ids), np.int64)
        decode_values(self._mapped.view, key_ids, values)
        return values

    def _checked(self, key_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        key_ids = np.ascontiguousarray(key_ids, np.int64)
        if len(key_ids) and not (0 <= key_ids.min() and key_ids.max() < len(self)):
            raise IndexError(f"a key id outside 0 to {len(self) - 1:,}")
        return key_ids

    def search(
        self,
        tokens: npt.NDArray[Any],
        logprobs: npt.NDArray[Any],
        *,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        top_k: int | None = None,
        end_logprobs: npt.NDArray[Any] | None = None,
        length_penalty: float = 0.0,
        threads: int | None = None,
        stats: SearchStats | None = None,
    ) -> SearchResult:
        """Beam search of Q queries: tokens and logprobs [Q, T, K], end_logprobs [Q, T + 1].

        tokens of any integer dtype, the others floating-point. Exact as the definition in
        docs/search.md; the results do not depend on `threads` (all cores if left out), of which
        each searches a query at a time. Raises UsageError, InputError.
        """
        self.artifact.check_unchanged()
        given = check_proposals(
            tokens,
            logprobs,
            beam_width=beam_width,
            top_k=top_k,
            end_logprobs=end_logprobs,
            length_penalty=length_penalty,
            vocab_size=self.artifact.header.vocab_size,
        )
        return self._search(given, threads or usable_cores(), stats)

    def search_logits(
        self,
        logits: npt.NDArray[Any],
        *,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        top_k: int | None = None,
        end_logprobs: npt.NDArray[Any] | None = None,
        length_penalty: float = 0.0,
        threads: int | None = None,
        stats: SearchStats | None = None,
    ) -> SearchResult:
        """The same from logits [Q, T, W] of any floating dtype: the top_k, or 1000, of each row.

        Log-softmax is over all columns in float64, rounded to float32 once.
        """
        self.artifact.check_unchanged()
        limit = check_limits(beam_width, DEFAULT_LOGITS_TOP_K if top_k is None else top_k)
        logits = np.asarray(logits)
        check_logits(logits)
        queries, steps, _ = logits.shape
        end = check_end_logprobs(end_logprobs, queries, steps)
        penalties = check_penalties(steps, length_penalty)
        threads = threads or usable_cores()
        vocab_size = self.artifact.header.vocab_size
        proposals = logit_proposals(logits, vocab_size, limit, self._workers, threads)
        given = SearchInput(*proposals, end, penalties, beam_width, limit)
        return self._search(given, threads, stats)

    def _search(self, given: SearchInput, threads: int, stats: SearchStats | None) -> SearchResult:
        result = self._searcher().search(given, threads, stats)
        return replace(result, values=self.values(result.key_ids))

    def _ranks(self) -> RankTable:
        with self._lock:
            if self._lazy_ranks is None:
                header, sections = self.artifact.header, self.artifact.sections
                self._lazy_ranks = RankTable(sections["alphabet"], header.vocab_size)
            return self._lazy_ranks

    def _searcher(self) -> Searcher:
        ranks = self._ranks()
        with self._lock:
            if self._lazy_searcher is None:
                header = self.artifact.header
                self._lazy_searcher = Searcher(self._mapped, ranks, header, self._workers)
            return self._lazy_searcher


def open_trie(path: str | os.PathLike[str]) -> Trie:
    """Open an artifact. O(levels); see formats.reader.open_artifact for what it raises."""
    return Trie(open_artifact(path))


def _check_offsets(offsets: npt.NDArray[np.int64], tokens: int) -> None:
    wrong = len(offsets) == 0 or offsets[0] < 0 or offsets[-1] > tokens
    if wrong or (np.diff(offsets) < 0).any():
        raise UsageError(f"offsets that do not rise from 0 to at most {tokens:,}")
