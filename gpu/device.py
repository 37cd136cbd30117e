"""`DeviceTrie`: an artifact in GPU memory, with the searches and lookups of the CPU's Trie."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from flashtrie.formats.dlpack import device_of
from flashtrie.formats.errors import InputError, ResourceError, UsageError
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import COLUMN, LEVEL_COLUMNS, SECTION, Header
from flashtrie.formats.search import (
    ABSENT,
    DEFAULT_BEAM_WIDTH,
    DEFAULT_LOGITS_TOP_K,
    SearchResult,
    SearchStats,
    as_tokens,
    check_limits,
)
from flashtrie.gpu import arguments, payload
from flashtrie.gpu.compiler import load
from flashtrie.gpu.inputs import DeviceResult, Given, check_ends, stream_of
from flashtrie.gpu.logits import MOST_ROWS_BYTES, logit_array, logit_proposals
from flashtrie.gpu.sampling_arguments import Workspace
from flashtrie.gpu.search import Batch, Searcher

_MAX_TABLE_FACTOR = 16  # entries of a dense table of ranks per token of the alphabet
_KIND_NODES = 64  # as in kernels/trie.cuh
_THREADS = 256
KEPT_FREE = 64 << 20  # for the kernels themselves and a small search
_ROWS_SHARE = 0.125  # of the free memory that rows of logits may take, and as much their copies


@dataclass(frozen=True)
class LoadReport:
    """What loading took: bytes on the device, of which `derived` are not in the file."""

    bytes: int
    derived: int
    seconds: float
    free: int  # bytes left on the device

    @property
    def gigabytes_per_second(self) -> float:
        """Bytes of the file by the time of loading, with checks and what is derived."""
        return (self.bytes - self.derived) / self.seconds / 1e9


class DeviceTrie:
    """A key set in the memory of a CUDA device: the current one when it was loaded.

    Arrays in and out are anything with DLPack: tensors on the device are used where they are.
    Calls run on that device whichever is current, on CuPy's current stream of it, or where a
    tensor of PyTorch is given on PyTorch's. Any number of streams and threads may call.
    """

    def __init__(self, artifact: Artifact, progress: Progress | None = None) -> None:
        """Load an open artifact and verify its checksums. Raises ResourceError, ArtifactError.

        The artifact is not needed afterwards.
        """
        started = time.monotonic()
        artifact.check_unchanged()
        self.header = artifact.header
        self.path = artifact.path
        self.device = int(cupy.cuda.Device().id)
        need = device_bytes(artifact)
        _check_free(need)
        self._payload = payload.upload(artifact, progress)
        payload.check_payload(artifact, self._payload)
        addresses = payload.addresses(artifact, self._payload)
        self._derived = _Derived(artifact, addresses)
        self._ranks = _Ranks(self._section(artifact, "alphabet"), self.header.vocab_size)
        self.trie_words = arguments.trie_words(
            self.header,
            addresses,
            self._derived.levels.data.ptr,
            self._derived.store_flag_fine,
            *self._ranks.arguments,
        )
        self._derived.derive(self.trie_words)
        self.searcher = Searcher(self.header, self.trie_words)
        cupy.cuda.get_current_stream().synchronize()
        self.report = LoadReport(
            need, need - len(self._payload), time.monotonic() - started, free_bytes()
        )

    def __len__(self) -> int:
        """The number of keywords."""
        return self.header.keywords

    def search(
        self,
        tokens: Any,
        logprobs: Any,
        *,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        top_k: int | None = None,
        end_logprobs: Any = None,
        length_penalty: float = 0.0,
        stats: SearchStats | None = None,
    ) -> SearchResult:
        """Beam search of Q queries as Trie.search, with equal results, in NumPy arrays.

        A batch of which the input or the results do not fit goes through the device in parts.
        Raises UsageError, InputError, ResourceError.
        """
        with self.current(tokens, logprobs, end_logprobs):
            batch = self.searcher.batch(
                tokens, logprobs, beam_width, top_k, end_logprobs, length_penalty
            )
            return self.searcher.search(batch, stats)

    def search_on_device(
        self,
        tokens: Any,
        logprobs: Any,
        *,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        top_k: int | None = None,
        end_logprobs: Any = None,
        length_penalty: float = 0.0,
    ) -> DeviceResult:
        """The same without waiting: results stay on the device, in CuPy arrays, all at once."""
        with self.current(tokens, logprobs, end_logprobs):
            given = self.searcher.check(
                tokens, logprobs, beam_width, top_k, end_logprobs, length_penalty
            )
            return self.searcher.launch(given)

    def search_logits(
        self,
        logits: Any,
        *,
        beam_width: int = DEFAULT_BEAM_WIDTH,
        top_k: int | None = None,
        end_logprobs: Any = None,
        length_penalty: float = 0.0,
        stats: SearchStats | None = None,
    ) -> SearchResult:
        """The same from logits [Q, T, W]: top_k, 1000 if left out, of each row.

        Log-probabilities may differ from the CPU's by one unit in the last place of a float32.
        """
        limit = check_limits(beam_width, DEFAULT_LOGITS_TOP_K if top_k is None else top_k)
        with self.current(logits, end_logprobs):
            logits = logit_array(logits)
            queries, steps, columns = logits.shape
            end = check_ends(end_logprobs, queries, steps)
            vocab_size = self.header.vocab_size
            room = min(MOST_ROWS_BYTES, int(free_bytes() * _ROWS_SHARE))
            workspace = Workspace()

            def given(start: int, stop: int) -> Given:
                part = logits[start:stop]
                found = logit_proposals(part, vocab_size, limit, workspace, room)
                here = None if end is None else end[start:stop]
                arrays = found.tokens, found.logprobs
                given = self.searcher.check(*arrays, beam_width, None, here, length_penalty)
                return replace(given, proposals=found)

            taken = steps * min(limit, columns, vocab_size) * (4 + 4)
            batch = Batch(queries, steps, beam_width, taken, given)
            return self.searcher.search(batch, stats)

    def lookup_flat(
        self, tokens: npt.NDArray[Any], offsets: npt.NDArray[np.int64], threads: int = 1
    ) -> npt.NDArray[np.int64]:
        """Key ids of keywords tokens[offsets[i]:offsets[i + 1]], -1 where absent: int64 [n].

        As Trie.lookup_flat; `threads` has no meaning here.
        """
        del threads
        tokens = np.asarray(tokens)
        offsets = np.ascontiguousarray(offsets, np.int64)
        if tokens.dtype.kind not in "iu":
            raise UsageError(f"tokens of dtype {tokens.dtype}", cause="tokens are integers")
        count = len(offsets) - 1
        wrong = count < 0 or offsets[0] < 0 or offsets[-1] > len(tokens)
        if wrong or (np.diff(offsets) < 0).any():
            raise UsageError(f"offsets that do not rise from 0 to at most {len(tokens):,}")
        with self.current():
            flat = cupy.asarray(as_tokens(tokens, self.header.vocab_size))
            found = cupy.empty(count, np.int64)
            if count:
                kernel = load("lookup.cu", "find_keywords")
                blocks = -(-count // _THREADS)
                trie = arguments.by_value(self.trie_words)
                given = (trie, flat, cupy.asarray(offsets), found, np.uint64(count))
                kernel((blocks,), (_THREADS,), given)
            key_ids: npt.NDArray[np.int64] = found.get()
        return key_ids

    @contextlib.contextmanager
    def current(self, *arrays: Any) -> Iterator[None]:
        """Work on this device with these arrays: on the stream that the class says.

        Raises InputError for arrays on another device, ResourceError where its memory is full.
        """
        for array in arrays:
            if (other := device_of(array)) not in (None, self.device):
                raise InputError(
                    f"an array on CUDA device {other}",
                    cause=f"the artifact is in the memory of device {self.device}",
                    hint="Load it on each device that searches, or move the arrays",
                )
        try:
            with stream_of(self.device, *arrays):
                yield
        except MemoryError as error:
            if not type(error).__module__.startswith("cupy"):
                raise
            raise ResourceError(
                "not enough GPU memory",
                cause=str(error),
                hint="Close what else uses the GPU, search fewer queries at a time or with fewer "
                "beams, or search with --device cpu",
            ) from error

    def payload(self) -> Any:
        """The sections as they are in the file, from the first on: uint8 on the device."""
        return self._payload

    def _section(self, artifact: Artifact, name: str) -> Any:
        start = artifact.offsets[name] - artifact.header_bytes
        dtype = SECTION[name].dtype
        size = artifact.lengths[name] * dtype.itemsize
        return self._payload[start : start + size].view(dtype)


def device_bytes(artifact: Artifact) -> int:
    """Bytes that an artifact takes on the device, without the memory of searches. O(levels)."""
    header = artifact.header
    return (
        payload.payload_bytes(artifact)
        + _Derived.bytes(header)
        + _Ranks.bytes(header.alphabet_size, header.vocab_size)
    )


def free_bytes() -> int:
    """Bytes of the device that can still be had."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def _check_free(need: int) -> None:
    free = free_bytes()
    if need + KEPT_FREE > free:
        raise ResourceError(
            "not enough GPU memory for the artifact",
            cause=f"it takes {need + KEPT_FREE:,} bytes, {free:,} are free",
            hint="Close what else uses the GPU, or search with --device cpu",
        )


class _Derived:
    """What is derived from the sections at loading; kernels/trie.cuh says what for."""

    def __init__(self, artifact: Artifact, addresses: Mapping[str, int]) -> None:
        """Zeros."""
        self._header = artifact.header
        self._store_flag = addresses["store_flag"]
        sizes = self._sizes(self._header)
        self._arrays = {name: cupy.zeros(sum(parts), np.uint32) for name, parts in sizes.items()}
        starts = {name: _starts(array, sizes[name]) for name, array in self._arrays.items()}
        self.store_flag_fine = int(starts.pop("store_flag_fine")[0])
        self.levels = cupy.asarray(arguments.level_words(artifact.parameters, addresses, starts))

    def derive(self, trie_words: npt.NDArray[np.uint64]) -> None:
        """Fill them, without waiting."""
        header = self._header
        trie = arguments.by_value(trie_words)
        columns = {name: header.level_table[:, COLUMN[name]].tolist() for name in LEVEL_COLUMNS}
        for row in range(header.levels):
            nodes, inner, tails = (columns[name][row] for name in ("nodes", "inner", "tails"))
            levels = (self.levels, np.uint64(row))
            _launch("derive_kinds", -(-nodes // _KIND_NODES), levels)
            if row + 1 < header.levels:
                _launch("derive_firsts", columns["nodes"][row + 1] // 64 + 1, levels)
            if tails:
                _launch("derive_tail_starts", nodes - inner, (trie, np.uint64(row)))
        bits = _store_flags(header)
        if bits:
            given = (self._store_flag, bits, self.store_flag_fine)
            _launch("derive_fine", bits // 64 + 1, tuple(map(np.uint64, given)))

    @classmethod
    def bytes(cls, header: Header) -> int:
        """Memory of the derived arrays and the levels' parameters."""
        derived = sum(sum(parts) for parts in cls._sizes(header).values())
        return 4 * derived + 8 * header.levels * len(arguments.LEVEL_FIELDS)

    @staticmethod
    def _sizes(header: Header) -> dict[str, list[int]]:
        """Of each derived array, its 32-bit words of each level; all begin at 16 bytes."""
        columns = {name: header.level_table[:, COLUMN[name]].tolist() for name in LEVEL_COLUMNS}
        nodes, inner, tails = (columns[name] for name in ("nodes", "inner", "tails"))
        blocks = [-(-n // _KIND_NODES) for n in nodes]
        bits = arguments.tail_start_bits(header)
        leaves = [n - i if t else 0 for n, i, t in zip(nodes, inner, tails, strict=True)]
        return {
            "firsts": [_multiple_of_4(2 * (n + 1)) for n in inner],
            "kinds": [_KIND_NODES // 16 * n for n in blocks],
            "kind_ranks": [_multiple_of_4(n) for n in blocks],
            "tail_starts": [_multiple_of_4(n * bits // 32 + 3) for n in leaves],
            "store_flag_fine": [_multiple_of_4(_store_flags(header) // 128 + 1)],
        }


def _store_flags(header: Header) -> int:
    """Bits of the store's flags, 0 where no label has a high part."""
    return header.store_tokens if header.store.highs else 0


def _launch(name: str, threads: int, given: tuple[Any, ...]) -> None:
    blocks = min(-(-threads // _THREADS), 1 << 20)
    load("derive.cu", name)((blocks,), (_THREADS,), given)


def _multiple_of_4(n: int) -> int:
    return -(-n // 4) * 4


def _starts(array: Any, sizes: list[int]) -> npt.NDArray[np.uint64]:
    """Addresses of consecutive parts of an array."""
    before = np.cumsum([0, *sizes[:-1]], dtype=np.uint64)
    return np.uint64(array.data.ptr) + before * np.uint64(array.itemsize)


class _Ranks:
    """The alphabet inverted: a dense table while V <= 16 A, else a hash."""

    def __init__(self, alphabet: Any, vocab_size: int) -> None:
        count = len(alphabet)
        self._table: Any = None
        if self._is_dense(count, vocab_size):
            self._table = cupy.full(vocab_size, ABSENT, np.uint32)
            # A wrong payload may have any tokens; checksums do not say that it is right.
            known = cupy.minimum(alphabet, np.uint32(vocab_size - 1))
            self._table[known] = cupy.arange(count, dtype=np.uint32)
            self.arguments = (self._table.data.ptr, vocab_size, 0, 0)
        else:
            bits = self._bits(count)
            self._table = cupy.full(1 << bits, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64)
            shift = 64 - bits
            given = (alphabet, np.uint64(count), self._table, np.uint64(shift))
            _launch("derive_rank_hash", count, given)
            self.arguments = (0, 0, self._table.data.ptr, shift)

    @classmethod
    def bytes(cls, count: int, vocab_size: int) -> int:
        """Memory of the table or the hash."""
        return 4 * vocab_size if cls._is_dense(count, vocab_size) else 8 << cls._bits(count)

    @staticmethod
    def _is_dense(count: int, vocab_size: int) -> bool:
        return vocab_size <= _MAX_TABLE_FACTOR * count

    @staticmethod
    def _bits(count: int) -> int:
        return max((2 * count - 1).bit_length(), 1)
