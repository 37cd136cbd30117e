"""Make the golden artifacts of format version 1: `python -m tests.data.make_golden`.

The files stay as they are when a later version comes: a reader of any version opens them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.reference_builder import Row, reference_artifact

KINDS = ("implicit", "indexed")
VOCAB_SIZE = 2**32 - 1
TAGS = {"kind": "golden", "note": 'quotes " and é'}
_TOKENS = (0, 1, 2, 65_535, 65_536, 2**21, 2**31 + 5, 2**32 - 2, *range(100, 400, 7))


def rows() -> list[Row]:
    """Keywords with shared prefixes and tails, duplicates, negative values, one long keyword."""
    draw = _numbers()
    result: list[Row] = [((9, *range(300), 9), 2**40)]
    for _ in range(500):
        length = 1 + next(draw) % 7
        # The product of two draws prefers the first tokens.
        tokens = [
            _TOKENS[next(draw) % len(_TOKENS) * (next(draw) % 100) // 100] for _ in range(length)
        ]
        result.append((tuple(tokens), next(draw) % 1000 - 500))
    return result


def _numbers() -> Iterator[int]:
    """Numbers that no library can change: the linear congruential generator of Knuth's MMIX."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def make(folder: Path) -> None:
    """Write one artifact for each kind of tails."""
    for kind in KINDS:
        path = folder / f"v1-{kind}.trie"
        path.unlink(missing_ok=True)
        reference_artifact(path, rows(), tails=kind, vocab_size=VOCAB_SIZE, tags=TAGS)


if __name__ == "__main__":
    make(Path(__file__).parent)
