from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashtrie.builder import inputs
from flashtrie.builder.inputs import faults_error, output_stem, resolve, unchanged
from flashtrie.formats.errors import InputError

TREE: str = """
_SUCCESS
.part-00001.parquet.crc
part-00001.parquet.crc
.hidden.parquet
_metadata.parquet
notes.txt
part-1.parquet
part-2.parquet
part-10.PARQUET
part-11.parq
_temporary/0/part-9.parquet
.staging/part-9.parquet
a=1/b=2/part-0.parquet
_a=1/part-0.pq
"""
DATA = [
    "_a=1/part-0.pq",
    "a=1/b=2/part-0.parquet",
    "part-1.parquet",
    "part-2.parquet",
    "part-10.PARQUET",
    "part-11.parq",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE.split():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "data"


def names(*given: str | Path, below: Path) -> list[str]:
    files, faults = resolve(given)
    assert faults == []
    return [os.path.relpath(file.path, below) for file in files]


def test_folder_in_natural_order_without_markers(tree: Path) -> None:
    assert names(tree, below=tree) == DATA
    assert names(f"{tree}/", below=tree) == DATA
    assert names(f"file://{tree}", below=tree) == DATA


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("part-?.parquet", ["part-1.parquet", "part-2.parquet"]),
        ("part-[12].parquet", ["part-1.parquet", "part-2.parquet"]),
        ("part-*.par*", ["part-1.parquet", "part-2.parquet", "part-11.parq"]),
        ("**/part-0.*", ["_a=1/part-0.pq", "a=1/b=2/part-0.parquet"]),
        ("a=*", ["a=1/b=2/part-0.parquet"]),
        ("**/*.parquet", ["a=1/b=2/part-0.parquet", "part-1.parquet", "part-2.parquet"]),
        ("_temp*/**/*.parquet", ["_temporary/0/part-9.parquet"]),
        ("_meta*", ["_metadata.parquet"]),
    ],
)
def test_glob(tree: Path, pattern: str, found: list[str]) -> None:
    got = names(tree / pattern, below=tree)
    assert [name for name in got if not name.endswith("crc")] == found
    # The same pattern on a remote store gives the same files.
    parts = pattern.split("/")
    chosen = [name for name in TREE.split() if inputs._chosen(name.split("/"), parts)]
    assert sorted(name for name in chosen if not name.endswith("crc")) == sorted(found)


def test_literal_name_wins_over_glob(tmp_path: Path) -> None:
    (tmp_path / "[1].parquet").write_bytes(b"x")
    assert names(tmp_path / "[1].parquet", below=tmp_path) == ["[1].parquet"]


def test_a_file_counts_once(tree: Path) -> None:
    assert names(tree, tree / "part-1.parquet", tree / "*.parquet", below=tree) == DATA


def test_explicit_file_of_any_name(tree: Path) -> None:
    assert names(tree / "_metadata.parquet", tree / "notes.txt", below=tree) == [
        "_metadata.parquet",
        "notes.txt",
    ]


def test_links_are_followed_once(tree: Path) -> None:
    (tree / "loop").symlink_to(tree)
    (tree / "link.parquet").symlink_to(tree / "part-1.parquet")
    assert names(tree, below=tree) == ["_a=1/part-0.pq", DATA[1], "link.parquet", *DATA[2:]]


def test_every_fault_is_listed(tree: Path) -> None:
    (tree / "empty").mkdir()
    os.mkfifo(tree / "pipe.parquet")
    given = ["missing.parquet", "missing-*.parquet", "empty", "pipe.parquet"]
    files, faults = resolve(
        [*(tree / name for name in given), "nosuch://x/y", tree / "part-1.parquet"]
    )
    assert [os.path.basename(file.name) for file in files] == ["part-1.parquet"]
    reasons = {os.path.basename(fault.file): fault.reason for fault in faults}
    assert reasons["missing.parquet"] == "No such file or directory"
    assert reasons["missing-*.parquet"] == "no file matches"
    assert "no Parquet file" in reasons["empty"]
    assert reasons["pipe.parquet"] == "not a regular file"
    assert "nosuch" in reasons["y"]
    error = faults_error(faults)
    assert isinstance(error, InputError)
    for fault in faults:
        assert f"{fault.file}: {fault.reason}" in str(error)


def test_credentials_are_not_shown() -> None:
    _, faults = resolve(["s3://key:hunter@b/k?nosuch=hunter", "what://me:hunter@b/k", "s3://"])
    assert [fault.file for fault in faults] == ["s3://b/k", "what://b/k", "s3://"]
    assert "hunter" not in str(faults_error(faults))


def test_unchanged(tree: Path) -> None:
    files, _ = resolve([tree / "part-1.parquet", tree / "part-2.parquet", tree / "part-11.parq"])
    assert unchanged(files) == [True, True, True]
    state = os.stat(files[0].path)
    (tree / "new").write_bytes(b"y")  # same size, and the same time
    os.utime(tree / "new", ns=(state.st_atime_ns, state.st_mtime_ns))
    os.replace(tree / "new", files[0].path)
    os.unlink(files[2].path)
    assert unchanged(files) == [False, True, False]


def test_a_store_that_does_not_answer(tree: Path) -> None:
    class Silent:
        def get_file_info(self, paths: list[str]) -> None:
            raise OSError("no route to host")

    (file,), _ = resolve([tree / "part-1.parquet"])
    silent: Any = Silent()
    with pytest.raises(InputError, match="part-1.parquet: the files cannot be looked at again: no"):
        unchanged([replace(file, filesystem=silent)])


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("keywords.parquet", "keywords"),
        ("/a/b/key.words.PARQUET", "key.words"),
        ("/a/b/export/", "export"),
        ("export.v2", "export.v2"),
        ("s3://bucket/a/keywords.parquet?region=eu-west-1", "keywords"),
        ("s3://bucket/my%20set/", "my set"),
        ("s3://bucket", "bucket"),
        ("gs://bucket/part-?.parquet", None),
        ("shards/*.parquet", None),
        ("/", None),
    ],
)
def test_output_stem(text: str, stem: str | None) -> None:
    assert output_stem(text) == stem


def test_output_stem_of_the_working_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert output_stem(".") == "data"
