"""Verify: everything that a right artifact satisfies, whatever is in the file.

Checksums and padding, then bitmaps and directories (structure.py), then labels, tails, store and
values (content.py, store.py). Reads the file some three times with pread, in pieces, with threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from flashtrie.formats.checksums import chunk_digests, chunks, digest, section_checksums
from flashtrie.formats.content import Content
from flashtrie.formats.cores import usable_cores
from flashtrie.formats.payload import Bitmap, Payload, coded_arrays
from flashtrie.formats.progress import Progress
from flashtrie.formats.reader import Artifact
from flashtrie.formats.schema import SECTIONS, padded_bytes
from flashtrie.formats.structure import (
    PIECE,
    Report,
    bitmaps,
    check_ones,
    check_piece,
    check_unused_bits,
)

# The checks in their order, and what holds where one is right.
HOLDS = {
    "checksums": "every section has the checksum that the header states",
    "padding": "bytes between sections are zero",
    "bitmaps": "bitmaps have the ones that are stated, and none behind their end",
    "directories": "rank and select directories are those of their bitmaps",
    "codings": "high parts are not zero and as narrow as they can be",
    "alphabet": "tokens are distinct, below vocab_size, and all used",
    "labels": "labels are in the alphabet, siblings in rising order",
    "tree": "no inner node has a single keyword below it",
    "tails": "tails end, within max_length",
    "store": "the tail store is as it should be",
    "max_length": "the longest keyword has max_length tokens",
    "values": "values are as small as can be, and below 2^63",
}
_STRUCTURE = ("bitmaps", "directories")


class Check(NamedTuple):
    """What was checked, whether it holds, and where it does not."""

    name: str
    ok: bool
    detail: str


class _Findings:
    """For each check the first problem, by the order of tasks, and how many there are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[str, tuple[int, str]] = {}
        self._count: dict[str, int] = {}
        self._tasks = 0

    def next_task(self) -> Report:
        """Where the next task reports. Not for threads; what it returns is."""
        number = self._tasks
        self._tasks += 1

        def report(name: str, detail: str) -> None:
            with self._lock:
                self._count[name] = self._count.get(name, 0) + 1
                before = self._first.get(name)
                if before is None or number < before[0]:
                    self._first[name] = (number, detail)

        return report

    def wrong(self, names: Iterable[str]) -> bool:
        return any(name in self._first for name in names)

    def check(self, name: str) -> Check:
        if name not in self._first:
            return Check(name, True, HOLDS[name])
        detail, more = self._first[name][1], self._count[name] - 1
        return Check(name, False, f"{detail} (and {more:,} more)" if more else detail)


def check(
    artifact: Artifact,
    threads: int | None = None,
    progress: Progress | None = None,
    known: Sequence[Check] = (),
) -> list[Check]:
    """Check everything that the format page states, in a fixed order of checks.

    O(bytes), with some 10 MB a thread; content.py says what comes on top. `threads`: all cores
    if left out. `known` checks were made elsewhere: what they find wrong is taken from them, and
    checksums that are among them, or both bitmaps and directories, are not gone through again.
    Raises ArtifactChanged where the file changes meanwhile.
    """
    made = {one.name: one for one in known}
    threads = threads or usable_cores()
    artifact.check_unchanged()
    findings, payload = _Findings(), Payload(artifact)
    if "checksums" not in made:
        _check_checksums(artifact, threads, findings.next_task(), progress)
    _check_padding(artifact, findings.next_task())
    if not made.keys() >= set(_STRUCTURE):
        _check_structure(payload, threads, findings, progress)
    _check_unused_bits(payload, findings.next_task())
    names = list(HOLDS)
    broken = findings.wrong(_STRUCTURE) or not all(made[n].ok for n in _STRUCTURE if n in made)
    if not broken:
        content = Content(payload)
        _run(content.tasks(), threads, findings, "contents", progress)
        if not findings.wrong(("store", "tails")):
            _run(content.last_tasks(), threads, findings, "tail order", progress)
        content.finish(findings.next_task())
    artifact.check_unchanged()
    checks = [findings.check(name) for name in names]
    checks = [made[c.name] if c.ok and c.name in made else c for c in checks]
    if broken:
        after = names.index(_STRUCTURE[-1]) + 1
        unknown = "not checked: bitmaps or directories are wrong"
        checks[after:] = [Check(name, False, unknown) for name in names[after:]]
    return checks


def _check_checksums(
    artifact: Artifact, threads: int, report: Report, progress: Progress | None
) -> None:
    parts = chunks(artifact.offsets, artifact.lengths)
    total, read, lock = sum(part.size for part in parts), 0, threading.Lock()

    def done(size: int) -> None:
        nonlocal read
        if progress:
            with lock:
                read += size
            progress("checksums", read, total, "bytes")

    digests = chunk_digests(artifact.descriptor, parts, threads, done)
    name = "chunk_digests"
    stored_bytes = artifact.pread(
        artifact.offsets[name], padded_bytes(name, artifact.lengths[name])
    )
    stored = np.frombuffer(stored_bytes, np.uint8, digests.size).reshape(digests.shape)
    if digest(stored_bytes) != artifact.checksums[name]:
        begin = artifact.offsets[name]
        place = f"bytes {begin:,} to {begin + len(stored_bytes) - 1:,} of the file"
        report("checksums", f"section {name} ({place}) has another checksum than the header states")
    differs = (digests != stored).any(axis=1)
    for section, value in section_checksums(parts, digests).items():
        if value == artifact.checksums[section]:
            continue
        wrong = [
            part
            for part, differ in zip(parts, differs, strict=True)
            if part.section == section and differ
        ]
        for part in wrong:
            place = f"bytes {part.offset:,} to {part.offset + part.size - 1:,} of the file"
            cause = f"section {section}, chunk {part.number:,} ({place}) has another digest"
            report("checksums", f"{cause} than was written")
        if not wrong:
            report("checksums", f"section {section} has another checksum than the header states")


def _check_padding(artifact: Artifact, report: Report) -> None:
    for section in SECTIONS:
        used = artifact.lengths[section.name] * section.dtype.itemsize
        unused = padded_bytes(section.name, artifact.lengths[section.name]) - used
        begin = artifact.offsets[section.name] + used
        if any(artifact.pread(begin, unused)):
            report("padding", f"the {unused} bytes behind section {section.name} are not all zero")


def _check_structure(
    payload: Payload, threads: int, findings: _Findings, progress: Progress | None
) -> None:
    pieces = [
        (bitmap, start) for bitmap in bitmaps(payload) for start in range(0, bitmap.size, PIECE)
    ]
    ones: dict[Bitmap, int] = dict.fromkeys((bitmap for bitmap, _ in pieces), 0)
    counts = _run(
        [_piece_task(payload, bitmap, start) for bitmap, start in pieces],
        threads,
        findings,
        "bitmaps",
        progress,
    )
    for (bitmap, _), count in zip(pieces, counts, strict=True):
        ones[bitmap] += count
    report = findings.next_task()
    for bitmap, count in ones.items():
        check_ones(bitmap, count, report)


def _check_unused_bits(payload: Payload, report: Report) -> None:
    for coded in coded_arrays(payload.artifact):
        check_unused_bits(payload, coded, report)


def _piece_task(payload: Payload, bitmap: Bitmap, start: int) -> Callable[[Report], int]:
    return lambda report: check_piece(payload, bitmap, start, report)


def _run(
    tasks: Iterable[Callable[[Report], Any]],
    threads: int,
    findings: _Findings,
    phase: str,
    progress: Progress | None,
) -> list[Any]:
    """Run tasks on threads; what they return, in their order."""
    bound = [(task, findings.next_task()) for task in tasks]
    # The tasks of thousands of levels are smaller than what it costs to hand one over.
    batch = min(max(len(bound) // (8 * threads), 1), 64)
    results: list[Any] = []
    pool = ThreadPoolExecutor(threads)
    try:
        for part in pool.map(
            lambda start: [task(report) for task, report in bound[start : start + batch]],
            range(0, len(bound), batch),
        ):
            results += part
            if progress:
                progress(phase, len(results), len(bound), "parts")
    finally:
        pool.shutdown(cancel_futures=True)
    return results
