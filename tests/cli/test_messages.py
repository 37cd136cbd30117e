"""What errors and results say, where it would be easy to say something else."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from flashtrie.cli import build, info, options
from flashtrie.formats.errors import UsageError
from tests.cli.conftest import trie


def test_a_row_without_anything_to_keep_is_null_in_json(folder):
    logits = np.full((2, 4), -np.inf, np.float32)
    logits[1] = [0, 1, 2, 3]
    np.save("logits.npy", logits)
    words = ["sample", "logits.npy", "--device=cpu", "--seed", "1", "-o", "kept.npz", "--json"]
    found = trie(*words, "--quiet")
    assert found.code == 0
    first, second = found.json["rows"]
    assert first == {"row": 0, "count": 0, "log_mass": None, "tokens": -1, "logprobs": None}
    assert second["count"] == 4
    assert np.load("kept.npz")["log_mass"][0] == -np.inf
    assert "-inf" in trie("sample", "logits.npy", "--device=cpu", "--quiet").stdout


@pytest.mark.parametrize(
    ("command", "module", "hint"),
    [
        (["info"], info, "Free some, or use a larger machine"),
        (["build", "keys.parquet"], build, "Lower --memory"),
    ],
)
def test_too_little_memory_has_a_way_out_that_the_command_has(
    command: list[str], module: Any, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise MemoryError("no 3 GiB")

    monkeypatch.setattr(module, "Output", fail)
    monkeypatch.setattr(module, "find_artifact", fail, raising=False)
    found = trie(*command)
    assert found.code == 2
    assert found.stderr == f"error: not enough memory: no 3 GiB. {hint}\n"


def test_a_full_quota_is_no_internal_error(monkeypatch):
    def fail(_: object) -> str:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "out.parquet")

    monkeypatch.setattr(info, "find_artifact", fail)
    found = trie("info")
    assert found.code == 2
    assert found.stderr == "error: out.parquet: cannot write: Disk quota exceeded\n"


@pytest.mark.parametrize("text", ["1e300TiB", "1e308KB", "0x", "2 GiB GiB"])
def test_no_sizes(text):
    with pytest.raises(UsageError, match="--memory is a size such as 2GiB"):
        options.parse_size("--memory", text)


def test_an_artifact_of_another_name_is_no_input(built, folder):
    source = built / "keywords.parquet"
    (folder / "index.bin").write_bytes((built / "plain.trie").read_bytes())
    words = ["verify", "--against", source, "index.bin", "--column", "tokens", "--device=cpu"]
    found = trie(*words, "--json", "--quiet")
    assert found.code == 0
    assert found.json["checks"][-1]["name"] == "values"
    # A damaged one is an artifact, too.
    data = bytearray((folder / "index.bin").read_bytes())
    data[-100] ^= 1
    (folder / "index.bin").write_bytes(data)
    assert trie(*words, "--quiet").code == 1


def test_what_is_no_artifact_was_taken_for_an_input(built, folder):
    source = built / "keywords.parquet"
    (folder / "index.bin").write_bytes(b"something else")
    found = trie("verify", "--against", source, "index.bin", "--device=cpu", "--quiet")
    assert found.code == 2
    assert found.stderr.startswith("error: no artifact was named: ")
    assert "Name one before --against, which took index.bin for an input" in found.stderr
