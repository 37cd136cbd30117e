"""Case 21: what the commands say of an artifact that a later flashtrie has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import trie
from tests.data import make_golden
from tests.formats.damage import Document, change_header

DATA = Path(make_golden.__file__).parent / "v1-implicit.trie"
HINT = "Upgrade flashtrie, or build the artifact with this version"


def other_sections(document: Document) -> None:
    """A later version may have what this one does not know at all."""
    document["__metadata__"]["format_version"] = "7"
    document["more"] = document.pop("tail")


def next_version(document: Document) -> None:
    document["__metadata__"]["format_version"] = "2"


def wrong_digest(data: bytes) -> bytes:
    """The same with one digit of the digest that the header states changed."""
    at = data.index(b'"digest":"') + len(b'"digest":"')
    return data[:at] + (b"1" if data[at : at + 1] == b"0" else b"0") + data[at + 1 :]


@pytest.fixture(params=[next_version, other_sections])
def newer(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A right file of version 2 or 7, as far as anybody can say who knows version 1."""
    change: Callable[[Document], None] = request.param
    path = tmp_path / "new.trie"
    path.write_bytes(change_header(DATA.read_bytes(), change))
    return path


def version(path: Path) -> int:
    return 7 if b'"format_version":"7"' in path.read_bytes() else 2


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "NEW"],
        ["info", "NEW"],
        ["lookup", "NEW", "--tokens", "1"],
        ["dump", "NEW"],
        ["diff", DATA, "NEW"],
    ],
    ids=lambda words: words[0],
)
def test_21_a_newer_version_is_no_damage(newer, words):
    """Not even to `verify`, which has no opinion of it: exit code 2, and what to do."""
    words = [newer if word == "NEW" else word for word in words]
    found = trie(*words, "--quiet")
    assert (found.code, found.stdout) == (2, "")
    assert found.stderr == (
        f"error: {newer}: format version {version(newer)}: "
        f"this program knows versions up to 1. {HINT}\n"
    )


def test_21_verify_of_a_newer_version_with_json(newer):
    found = trie("verify", newer, "--quiet", "--json")
    assert found.code == 2
    assert found.json == {
        "error": {
            "what": f"format version {version(newer)}",
            "where": str(newer),
            "cause": "this program knows versions up to 1",
            "hint": HINT,
        },
        "exit_code": 2,
    }


def test_21_a_wrong_digest_is_damage_whatever_the_version(newer):
    newer.write_bytes(wrong_digest(newer.read_bytes()))
    found = trie("verify", newer, "--quiet", "--json")
    assert found.code == 1
    (check,) = found.json["checks"]
    assert (found.json["ok"], check["name"], check["ok"]) == (False, "header", False)
    assert "damaged artifact" in check["detail"] and "digest" in check["detail"]
    assert "version" not in check["detail"]
    assert trie("info", newer).code == 2


def test_21_a_wrong_payload_of_a_newer_version_is_not_looked_at(newer):
    """Its rules may be others: the header is all that can be told."""
    data = newer.read_bytes()
    newer.write_bytes(data[:-100])
    assert trie("verify", newer, "--quiet").code == 2
