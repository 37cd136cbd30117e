"""benchmarks/marisa_prefix.py compares both on the same rows, and goes on where MARISA fails."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

marisa_prefix = pytest.importorskip("benchmarks.marisa_prefix")


def test_the_first_rows_of_the_set(tmp_path):
    found = marisa_prefix.measure(50_000, [3000], tmp_path)
    assert found["failed"] == []
    assert found["keywords"] == found["ours"]["keywords"] == found["marisa"]["keywords"] == 3000
    assert found["marisa"]["bits_per_keyword"] > 8 and found["ours"]["bits_per_keyword"] > 8
    rows = [tokens[offsets[0] : offsets[1]] for tokens, offsets in marisa_prefix.batches(50_000, 1)]
    longer = next(marisa_prefix.batches(50_000, 3000))
    assert rows[0].tolist() == longer[0][: longer[1][1]].tolist()


def test_a_size_that_fails_is_kept(tmp_path, monkeypatch):
    run = subprocess.run

    def fail(command: list[str], **options: Any) -> Any:
        if "--marisa" in command and "2000" in command:
            return subprocess.CompletedProcess(command, 1, stdout="MemoryError: no room")
        return run(command, **options)

    monkeypatch.setattr(marisa_prefix.subprocess, "run", fail)
    found = marisa_prefix.measure(50_000, [2000, 1000], tmp_path)
    assert found["failed"] == [
        {"keywords": 2000, "exit_code": 1, "printed": "MemoryError: no room"}
    ]
    assert found["keywords"] == 1000
