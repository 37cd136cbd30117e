"""Size against marisa-trie on the largest prefix of a key set that it can hold in this memory.

    python -m benchmarks.marisa_prefix [--of 8e8] [--keywords N]... [--folder DIR]

The set is the one that benchmarks/full_scale.py builds: kind wide, 2.2 million tokens, seed 0. Its
first N rows, which are a random sample of it, go to `trie build` as Parquet, and to
`marisa_trie.BinaryTrie` with 3 tries as prefix-free codes of frequency ranks, one key after the
other, so that its memory holds no list of them. N comes down until MARISA finishes in the memory
that is left here; what it fails with is kept. Seconds of MARISA have the making of keys in them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np
import numpy.typing as npt

import flashtrie
from benchmarks.marisa import build
from benchmarks.record import record
from flashtrie.builder.alphabet import rank_codes
from flashtrie.builder.memory import available_memory, peak_memory
from flashtrie.builder.scatter import encode_rows
from flashtrie.builder.unrank import write_rows
from flashtrie.builder.virtual_trie import virtual_trie
from flashtrie.formats.parquet import TOKENS, ParquetOutput, token_lists

_KIND, _VOCAB_SIZE, _SEED = "wide", 2_200_000, 0
_SIZES = [250_000_000, 200_000_000, 150_000_000, 100_000_000]
_BATCH = 1 << 18
_TRIES = 3

U32 = npt.NDArray[np.uint32]
I32 = npt.NDArray[np.int32]


def main() -> None:
    """Try sizes from the largest down; one JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", type=_count, default=800_000_000, help="keywords of the set")
    parser.add_argument("--keywords", type=_count, action="append", help="of a prefix; repeatable")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/flashtrie-benchmarks"))
    arguments = parser.parse_args()
    sizes = sorted(arguments.keywords or _SIZES, reverse=True)
    print(record("marisa_prefix", measure(arguments.of, sizes, arguments.folder)))


def measure(of: int, sizes: list[int], folder: Path) -> dict[str, Any]:
    """Both on the first of `sizes` that MARISA can hold, and how it failed on those before."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for count in sizes:
        source, artifact = folder / "prefix.parquet", folder / "prefix.trie"
        with ParquetOutput(source, {"tokens": TOKENS}, "the prefix", force=True) as output:
            for tokens, offsets in batches(of, count):
                output.write(token_lists(tokens, offsets))
        ours = build(_KIND, source, artifact)
        command = [sys.executable, "-m", "benchmarks.marisa_prefix", "--marisa"]
        command += [str(of), str(count), str(artifact)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            theirs = json.loads(done.stdout)
            return {
                "kind": _KIND,
                "vocab_size": _VOCAB_SIZE,
                "seed": _SEED,
                "set_keywords": of,
                "keywords": count,
                "ours": ours,
                "marisa": theirs,
                "failed": failed,
            }
        failed.append({"keywords": count, "exit_code": done.returncode, "printed": done.stdout})
        print(json.dumps(failed[-1]))
    sys.exit(f"marisa-trie can hold none of {sizes}")


def batches(of: int, count: int) -> Iterator[tuple[U32, I32]]:
    """The first `count` rows of the set of `of` keywords: tokens, and offsets of the rows."""
    trie = virtual_trie(_KIND, _VOCAB_SIZE)
    for first in range(0, count, _BATCH):
        rows = min(_BATCH, count - first)
        offsets = np.empty(rows + 1, np.int32)
        tokens = np.empty(rows * trie.depth, np.uint32)
        end = write_rows(trie, np.uint64(_SEED), of, of, first, offsets, tokens)
        yield tokens[:end], offsets


def keys(of: int, count: int, alphabet: U32) -> Iterator[bytes]:
    """The same rows, each as the codes of its ranks."""
    rank_of = np.empty(int(alphabet.max()) + 1, np.uint32)
    rank_of[alphabet] = np.arange(len(alphabet), dtype=np.uint32)
    codes = rank_codes(len(alphabet))
    for tokens, offsets in batches(of, count):
        yield from encode_rows(rank_of[tokens], offsets.astype(np.int64), codes).strings()


def _marisa(of: int, count: int, artifact: str) -> dict[str, Any]:
    """Figures of marisa-trie, in a process that may take what memory is left and no more."""
    most = available_memory()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with flashtrie.open(artifact) as trie:
        alphabet = trie.artifact.sections["alphabet"].copy()
    started = time.perf_counter()
    try:
        made = marisa_trie.BinaryTrie(keys(of, count, alphabet), num_tries=_TRIES)
    except (MemoryError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(1)
    seconds = time.perf_counter() - started
    peak = peak_memory()
    saved = Path(artifact).with_suffix(".marisa")
    made.save(str(saved))
    size = saved.stat().st_size
    saved.unlink()
    return {
        "bytes": size,
        "bits_per_keyword": round(8 * size / len(made), 2),
        "seconds_with_keys": round(seconds, 1),
        "peak_rss_bytes": peak,
        "memory_limit_bytes": most,
        "tries": _TRIES,
        "keywords": len(made),
    }


def _count(text: str) -> int:
    return int(float(text))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--marisa"]:
        print(json.dumps(_marisa(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
    else:
        main()
