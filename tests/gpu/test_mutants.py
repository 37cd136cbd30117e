"""Case 20 on the GPU: wrong artifacts are not loaded, or do no harm there.

FLASHTRIE_GPU_MUTANTS is how many, 200 by default. Accesses outside that do not fault are seen with

    FLASHTRIE_GPU_MUTANTS=20 compute-sanitizer .venv/bin/pytest tests/gpu/test_mutants.py
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashtrie
from flashtrie.formats.errors import ArtifactError, NewerFormatError
from flashtrie.formats.invariants import check
from tests.fuzz import bases
from tests.fuzz.exercise import Probe, demand_result, make_probe
from tests.fuzz.mutants import Base, mutant
from tests.fuzz.worker import base_of
from tests.gpu.conftest import assert_same

pytestmark = pytest.mark.gpu

MUTANTS = int(os.environ.get("FLASHTRIE_GPU_MUTANTS", "200"))
LEFT_OUT = "deep"  # thousands of levels, each of which takes launches of its own
MOST_SECONDS = 5.0 if MUTANTS >= 100 else 300.0  # for one; with a sanitizer it takes its time

REFUSED, NOT_LOADED, FOUND, RIGHT = "refused", "not loaded", "found by verify", "right"

folder = bases.folder


def use(path: Path, probe: Probe, *, sealed: bool, changed: bool) -> str:
    """Load, search, look up, verify on the device and on the CPU: the outcome."""
    from flashtrie.gpu.verify import checks_of

    try:
        trie = flashtrie.open(path)
    except (ArtifactError, NewerFormatError):
        return REFUSED
    with trie:
        try:
            device = trie.to_device()
        except ArtifactError:
            assert not next(c.ok for c in check(trie.artifact) if c.name == "checksums")
            return NOT_LOADED
        assert sealed or not changed
        found: list[Any] = [device.search(**query) for query in probe.queries]
        for query, result in zip(probe.queries, found, strict=True):
            demand_result(result, len(trie), query["tokens"].shape[1], query["beam_width"])
        key_ids = device.lookup_flat(probe.tokens, probe.offsets)
        assert ((key_ids >= -1) & (key_ids < len(trie))).all()
        on_device = all(c.ok for c in checks_of(trie.artifact, device))
        if not all(c.ok for c in check(trie.artifact)):
            return FOUND
        # What is right is so for both, and so are the answers.
        assert on_device
        for query, result in zip(probe.queries, found, strict=True):
            assert_same(result, trie.search(**query))
        assert np.array_equal(key_ids, trie.lookup_flat(probe.tokens, probe.offsets))
        return RIGHT


def test_20_mutants_do_no_harm_on_the_device(folder, tmp_path):
    import cupy

    known: dict[str, tuple[Base, Probe]] = {}
    for name in bases.BASES:
        if name != LEFT_OUT:
            path = folder / f"{name}.trie"
            with flashtrie.open(path) as trie:
                known[name] = Base(path), make_probe(trie)
            # The first of all compiles.
            assert use(path, known[name][1], sealed=True, changed=False) == RIGHT
    counts: Counter[str] = Counter()
    numbers = (number for number in range(10**6) if base_of(number) != LEFT_OUT)
    for number in (next(numbers) for _ in range(MUTANTS)):
        base, probe = known[base_of(number)]
        made = mutant(base, number)
        path = tmp_path / "mutant.trie"
        path.write_bytes(made.data)
        started = time.monotonic()
        try:
            outcome = use(path, probe, sealed=made.sealed, changed=made.data != base.data)
            cupy.cuda.Device().synchronize()
        except Exception as error:
            error.add_note(f"mutant {number}: {made.change}")
            raise
        assert time.monotonic() - started < MOST_SECONDS, (number, made.change)
        counts[outcome] += 1
    print(dict(counts))
    if MUTANTS >= 100:
        assert min(counts[outcome] for outcome in (REFUSED, NOT_LOADED, FOUND, RIGHT)) > 0
    # Nothing that they did is left: the right ones still answer as the CPU does.
    for name, (_, probe) in known.items():
        assert use(folder / f"{name}.trie", probe, sealed=True, changed=False) == RIGHT
