"""`--device`: what is chosen, and what is said where there is no GPU. None is needed."""

from __future__ import annotations

import pytest

import flashtrie
from flashtrie.formats.errors import UsageError
from flashtrie.gpu import devices
from tests.cli.conftest import trie


@pytest.fixture(params=["CuPy is not installed", "there is no CUDA device"])
def lacking(request, monkeypatch):
    missing = devices.Missing(request.param, "Do this")
    monkeypatch.setattr(devices, "missing", lambda: missing)
    return missing


@pytest.mark.parametrize("words", [["--device", "auto"], []])
def test_auto_takes_the_cpu_and_says_why(built, lacking, words):
    found = trie("verify", built / "keywords.trie", *words)
    assert found.code == 0
    assert f"device: cpu ({lacking.cause})" in found.stderr


def test_the_cpu_is_not_asked_for_a_gpu(built, monkeypatch):
    monkeypatch.setattr(devices, "missing", lambda: pytest.fail("it was"))
    for words in (["--device", "cpu"], []):
        found = trie("verify", built / "keywords.trie", *words, TRIE_DEVICE="cpu")
        assert found.code == 0
        assert "device: cpu\n" in found.stderr


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_a_gpu_that_is_asked_for_and_cannot_be(built, lacking, command):
    found = trie(command, built / "keywords.trie", "--device", "cuda")
    assert found.code == 2
    assert found.stderr == f"error: cannot use a GPU: {lacking.cause}. Do this\n"
    found = trie(command, built / "keywords.trie", TRIE_DEVICE="cuda")
    assert found.code == 2


def test_load_takes_a_gpu(built, lacking):
    found = trie("load", built / "keywords.trie", "--json")
    assert found.code == 2
    assert found.json["error"]["cause"] == lacking.cause
    assert "--device" not in found.json["error"]["hint"]


def test_to_device_takes_a_gpu(built, lacking):
    with flashtrie.open(built / "keywords.trie") as opened:
        with pytest.raises(UsageError, match=lacking.cause):
            opened.to_device()
