"""`generate`: synthetic key sets of any size as Parquet, in constant memory."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flashtrie.builder.unrank import write_rows
from flashtrie.builder.virtual_trie import (
    KINDS,
    MAX_KEYWORDS,
    MAX_VOCAB_SIZE,
    VirtualTrie,
    virtual_trie,
)
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.errors import OutputError, UsageError
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists
from flashtrie.formats.progress import Progress

_WHAT = "the key set"
_ROW_GROUP = 1 << 18  # rows; some 5 MB
_MAX_SHARDS = 400  # all files are open at once, twice each, and 1,024 is a common limit
_PART = re.compile(r"part-[0-9]{5,}\.parquet")


@dataclass(frozen=True)
class GenerateReport:
    """What was generated: `keywords` are distinct, `rows` count the copies too."""

    kind: str
    keywords: int
    rows: int
    vocab_size: int
    seed: int
    files: int
    bytes: int
    seconds: float
    output: str


def generate(
    output: str | os.PathLike[str],
    keywords: int,
    *,
    kind: str = "wide",
    vocab_size: int = 2_200_000,
    duplicates: float = 0.0,
    shards: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> GenerateReport:
    """Write `keywords` distinct keywords in random order: about a million a second and core.

    `output` is a folder of part-NNNNN.parquet (4 shards if left out), or one file where it ends in
    .parquet; their column is `tokens`, list<uint32>. duplicates x keywords more rows are copies.
    The rows depend on kind, keywords, vocabulary, duplicates and seed alone; shards and threads
    only cut them. What `kind` means and how keywords are made: builder/virtual_trie.py.

    Raises UsageError, OutputError or ResourceError. With `force`, an existing file, or the parts in
    an existing folder, are replaced.
    """
    started = time.monotonic()
    path = Path(output)
    single = path.suffix == ".parquet"
    shards = (1 if single else 4) if shards is None else shards
    rows = _check(keywords, kind, vocab_size, duplicates, shards, seed)
    if single and shards > 1:
        raise UsageError("a single file has no shards", str(path), hint="Name a folder")
    parts = [path] if single else [path / f"part-{i:05d}.parquet" for i in range(shards)]
    stale = [] if single else _existing_parts(path, force)
    trie = virtual_trie(kind, vocab_size)
    if keywords > trie.capacity[0]:
        raise UsageError(
            f"no room for {keywords:,} keywords of kind {kind}",
            cause=f"a vocabulary of {vocab_size:,} has room for {trie.capacity[0]:,}",
            hint="Choose a larger --vocab-size or fewer --keywords",
        )
    new = not single and not path.exists()
    try:
        if new:
            _make_folder(path)
        job = _Job(trie, seed, keywords, rows, progress, threads)
        job.run(parts, force)
    except BaseException:
        if new and path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        raise
    for part in stale:
        if part not in parts:
            part.unlink()
    return GenerateReport(
        kind=kind,
        keywords=keywords,
        rows=rows,
        vocab_size=vocab_size,
        seed=seed,
        files=len(parts),
        bytes=sum(part.stat().st_size for part in parts),
        seconds=time.monotonic() - started,
        output=str(path),
    )


class _Job:
    """Blocks of rows are made by a pool; each file has one thread that writes them in order."""

    def __init__(
        self,
        trie: VirtualTrie,
        seed: int,
        keywords: int,
        rows: int,
        progress: Progress | None,
        threads: int | None,
    ) -> None:
        self.trie = trie
        self.seed = np.uint64(seed)
        self.keywords = keywords
        self.rows = rows
        self.progress = progress
        self.threads = threads or usable_cores()
        self.done = 0
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def run(self, parts: list[Path], force: bool) -> None:
        """Write all files, then give them their names."""
        writers = min(len(parts), self.threads)
        self._report(0)
        ahead = max(2, self.threads // writers + 1)
        with ExitStack() as stack:
            files = [
                stack.enter_context(ParquetOutput(part, {"tokens": TOKENS}, _WHAT, force=force))
                for part in parts
            ]
            with ThreadPoolExecutor(self.threads) as pool, ThreadPoolExecutor(writers) as tasks:
                shards = [
                    tasks.submit(self._write, pool, file, i, len(parts), ahead)
                    for i, file in enumerate(files)
                ]
                try:
                    for shard in shards:
                        shard.result()
                except BaseException:
                    self.stop.set()
                    for shard in shards:
                        shard.cancel()
                    raise

    def _write(
        self, pool: ThreadPoolExecutor, file: ParquetOutput, shard: int, shards: int, ahead: int
    ) -> None:
        first, end = self.rows * shard // shards, self.rows * (shard + 1) // shards
        pending: deque[Future[pa.Array[Any]]] = deque()
        blocks = self._blocks(first, end)
        while not self.stop.is_set():
            while len(pending) < ahead and (rows := next(blocks, None)):
                pending.append(pool.submit(self._block, *rows))
            if not pending:
                return
            column = pending.popleft().result()
            file.write(column)
            self._report(len(column))
        for block in pending:
            block.cancel()

    def _report(self, rows: int) -> None:
        with self.lock:
            self.done += rows
            if self.progress:
                self.progress("generate", self.done, self.rows, "rows")

    def _blocks(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        for start in range(first, end, _ROW_GROUP):
            yield start, min(_ROW_GROUP, end - start)

    def _block(self, first: int, rows: int) -> pa.Array[Any]:
        offsets = np.empty(rows + 1, np.int32)
        tokens = np.empty(rows * self.trie.depth, np.uint32)
        end = write_rows(self.trie, self.seed, self.keywords, self.rows, first, offsets, tokens)
        return token_lists(tokens[:end], offsets)


def _check(
    keywords: int, kind: str, vocab_size: int, duplicates: float, shards: int, seed: int
) -> int:
    """The number of rows. Raises UsageError for an option that cannot be right."""
    if kind not in KINDS:
        raise UsageError(f"--kind is one of {', '.join(KINDS)}, not {kind!r}")
    for name, value, least, most in (
        ("--keywords", keywords, 1, MAX_KEYWORDS),
        ("--vocab-size", vocab_size, 1, MAX_VOCAB_SIZE),
        ("--duplicates", duplicates, 0, 1000),
        ("--shards", shards, 1, _MAX_SHARDS),
        ("--seed", seed, 0, 2**64 - 1),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name} is from {least:,} to {most:,}, not {value:,}")
    return keywords + round(duplicates * keywords)


def _existing_parts(folder: Path, force: bool) -> list[Path]:
    """The parts to be replaced. Raises OutputError where there is anything and `force` is off."""
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise OutputError(f"cannot write {_WHAT}", str(folder), "there is a file, not a folder")
    # Hidden files are what a dead run has left.
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if names and not force:
        raise OutputError(
            f"cannot write {_WHAT}", str(folder), "the folder is not empty", "--force replaces it"
        )
    return [folder / name for name in names if _PART.fullmatch(name)]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        cause = error.strerror or str(error)
        raise OutputError(f"cannot write {_WHAT}", str(folder), cause) from error
