"""Fuzz that coverage guides, with atheris: `python -m tests.fuzz.coverage TARGET [OPTION...]`.

TARGET is `reader`, which opens bytes as an artifact, asks it something and verifies it, or
`parquet`, which builds an artifact of bytes. Options are those of libFuzzer, such as
-max_total_time=60, and folders of further examples. What is found new stays in the first folder
named; `tests/fuzz/corpus` is where it begins, and `corpus` as TARGET writes that again. Any
exception but the product's own is a finding.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus")
PACKAGE = Path(__file__).parents[2] / "src" / "flashtrie"
_MEMORY = 512 << 20


def reader() -> Callable[[bytes], None]:
    """The first byte says whether checksums are made right before: few changes would be read."""
    from flashtrie.cpu.trie import open_trie
    from flashtrie.formats.errors import FlashTrieError
    from flashtrie.formats.info import describe
    from flashtrie.formats.invariants import check
    from tests.fuzz.exercise import touch

    descriptor = os.memfd_create("artifact")

    def target(data: bytes) -> None:
        content = sealed(data[1:]) if data[:1] == b"\1" else data[1:]
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        try:
            with open_trie(f"/proc/self/fd/{descriptor}") as trie:
                describe(trie.artifact)
                touch(trie)
                check(trie.artifact, threads=1)
        except FlashTrieError as error:
            str(error).encode()

    return target


def sealed(data: bytes) -> bytes:
    """With right checksums, where the header is one at all."""
    from flashtrie.formats.schema import SECTIONS
    from tests.formats.damage import resealed, split

    try:
        document, _ = split(data)
        lengths = [int(document["__metadata__"][f"length.{s.name}"]) for s in SECTIONS]
        if 0 <= min(lengths) and max(lengths) <= len(data):
            return resealed(data)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError):
        pass
    except (RecursionError, OverflowError):
        pass
    return data


def parquet() -> Callable[[bytes], None]:
    """Whatever is built of the bytes passes verify.

    Where a reader of pyarrow's refuses a row group nothing is built: to ask its metadata for a
    column of it may end the process (docs/reliability.md, What is not promised).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from flashtrie.builder.build import build
    from flashtrie.formats.errors import FlashTrieError
    from flashtrie.formats.invariants import check
    from flashtrie.formats.reader import open_artifact

    folder = Path(tempfile.mkdtemp(prefix="flashtrie-fuzz-"))
    source, output = folder / "keywords.parquet", folder / "out.trie"

    def target(data: bytes) -> None:
        source.write_bytes(data)
        with (
            contextlib.suppress(pa.ArrowException, OSError, ValueError),
            pq.ParquetFile(source) as file,
        ):
            for group in range(file.num_row_groups):
                try:
                    next(file.iter_batches(1, row_groups=[group], use_threads=False), None)
                except (pa.ArrowException, OSError):
                    return
        try:
            build([source], output, threads=1, memory=_MEMORY, force=True)
        except (FlashTrieError, MemoryError) as error:
            str(error).encode()
            assert {path.name for path in folder.iterdir()} <= {"keywords.parquet", "out.trie"}
            return
        with open_artifact(output) as artifact:
            assert all(c.ok for c in check(artifact, threads=1))

    return target


TARGETS = {"reader": reader, "parquet": parquet}


def write_corpus() -> None:
    """Two small artifacts, sealed and not, and small files of every kind of column."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.formats.keysets import TINY
    from tests.reference_builder import Row, reference_artifact

    reader, parquet = CORPUS / "reader", CORPUS / "parquet"
    for folder in (reader, parquet):
        folder.mkdir(parents=True, exist_ok=True)
    path = reader / "artifact"
    values: list[Row] = [((300, t), t) for t in range(40)]
    for name, keywords in (("tiny", TINY), ("values", values)):
        reference_artifact(path, keywords)
        (reader / name).write_bytes(b"\1" + path.read_bytes())
        path.unlink()
    rows = [[1, 2], [1], [7, 8, 9]]
    kinds: dict[str, Any] = {
        "uint32": pa.list_(pa.uint32()),
        "int64": pa.list_(pa.int64()),
        "uint16": pa.large_list(pa.uint16()),
    }
    for name, kind in kinds.items():
        table = pa.table({"tokens": pa.array(rows, kind)})
        pq.write_table(table, parquet / name, compression="none", store_schema=name == "uint16")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6), pa.int32()), 2)
    pq.write_table(pa.table({"a b.c": fixed}), parquet / "fixed", compression="snappy")
    nulls = pa.table({"tokens": pa.array([[1, None], None, []], pa.list_(pa.int32()))})
    pq.write_table(nulls, parquet / "nulls", compression="zstd", version="1.0")


def main() -> None:
    """Fuzz until libFuzzer's options say that it is enough, or something is found."""
    name, options = sys.argv[1], sys.argv[2:]
    if name == "corpus":
        write_corpus()
        return
    atheris: Any = importlib.import_module("atheris")
    # First what Numba compiles, as it is: it reads bytecode itself.
    for path in sorted([*PACKAGE.glob("cpu/*.py"), *PACKAGE.glob("builder/*.py")]):
        if re.search(r"^@(jit|inner)$", path.read_text(), re.MULTILINE):
            importlib.import_module(f"flashtrie.{path.parent.name}.{path.stem}")
    with atheris.instrument_imports(include=["flashtrie"]):
        target = TARGETS[name]()
    for example in sorted((CORPUS / name).iterdir()):
        target(example.read_bytes())  # compiles what is compiled
    folders = [option for option in options if not option.startswith("-")]
    if not folders:
        folders = [tempfile.mkdtemp(prefix="flashtrie-corpus-")]
    flags = [option for option in options if option.startswith("-")]
    atheris.Setup([sys.argv[0], *flags, *folders, str(CORPUS / name)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
