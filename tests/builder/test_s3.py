"""Case 13: inputs in a bucket, for the library and the commands, on an S3 server of our own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from flashtrie.builder.source import Source
from flashtrie.formats.errors import InputError
from tests.cli.conftest import process, trie

pytest.importorskip("flask", reason="needs moto[server]")
server = pytest.importorskip("moto.server", reason="needs moto[server]")

FILES = {
    "keys/part-1.parquet": [[1, 2], [3]],
    "keys/part-2.parquet": [[4]],
    "keys/part-10.parquet": [[5, 6]],
    "hive set/day=1/region=eu/part-0.parquet": [[7]],
    "hive set/day=2/region=us/part-0.parquet": [[8]],
    "hive set/_temporary/0/part-9.parquet": [[666]],
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """HOST:PORT of an S3 server on loopback, with FILES in the bucket `bucket`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    store = fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=f"{host}:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    store.create_dir("bucket")
    for name, rows in FILES.items():
        table = pa.table({"tokens": pa.array(rows, pa.list_(pa.uint32()))})
        pq.write_table(table, f"bucket/{name}", filesystem=store)
    with store.open_output_stream("bucket/keys/_SUCCESS"):
        pass
    yield f"{host}:{port}"
    moto.stop()


@pytest.fixture(autouse=True)
def credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def read(source: Source) -> list[list[int]]:
    return [
        batch.tokens[start:stop].tolist()
        for task in source.tasks
        for batch in source.read(task)
        for start, stop in zip(batch.offsets, batch.offsets[1:], strict=False)
    ]


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("keys/part-1.parquet", [[1, 2], [3]]),
        ("keys", [[1, 2], [3], [4], [5, 6]]),
        ("keys/", [[1, 2], [3], [4], [5, 6]]),
        ("keys/part-?.parquet", [[1, 2], [3], [4]]),
        ("keys/part-1*", [[1, 2], [3], [5, 6]]),
        ("hive set", [[7], [8]]),
        ("hive%20set/", [[7], [8]]),
        ("hive set/day=2", [[8]]),
        ("hive set/day=*/region=eu", [[7]]),
        ("hive set/**/*.parquet", [[7], [8]]),
        ("*/part-2.parquet", [[4]]),
    ],
)
def test_files_folders_globs(path: str, rows: list[list[int]]) -> None:
    source = Source.open([f"s3://bucket/{path}"])
    assert read(source) == rows
    source.check_unchanged()
    assert all(file.name.startswith("s3://bucket/") for file in source.files)


def test_endpoint_in_the_uri(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    query = f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    names = ("keys/part-*.parquet", "keys/part-1.parquet", "hive set")
    source = Source.open([f"s3://bucket/{name}{query}" for name in names])
    assert sorted(read(source)) == [[1, 2], [3], [4], [5, 6], [7], [8]]
    assert not any("?" in file.name for file in source.files)


def test_local_and_remote_files_together(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tokens": [[9]]}), tmp_path / "a.parquet")
    assert sorted(read(Source.open([tmp_path, "s3://bucket/keys/part-2.parquet"]))) == [[4], [9]]


def test_faults_are_named() -> None:
    with pytest.raises(InputError) as caught:
        Source.open(
            [
                "s3://bucket/nothing",
                "s3://nobucket/keys",
                "s3://bucket/no*",
                "s3://bucket/keys/_SUCCESS",
            ]
        )
    message = str(caught.value)
    assert "s3://bucket/nothing: no such file or folder" in message
    assert "s3://nobucket/keys: no such file or folder" in message
    assert "s3://bucket/no*: no file matches" in message
    assert "s3://bucket/keys/_SUCCESS: the file is empty" in message


def test_a_replaced_object_is_an_error(endpoint: str) -> None:
    store, path = fs.FileSystem.from_uri("s3://bucket/replaced.parquet")
    pq.write_table(pa.table({"tokens": [[1]]}), path, filesystem=store)
    source = Source.open(["s3://bucket/replaced.parquet"])
    pq.write_table(pa.table({"tokens": [[1], [2, 3]]}), path, filesystem=store)
    with pytest.raises(InputError, match=r"s3://bucket/replaced\.parquet: the file changed"):
        source.check_unchanged()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "output", "keywords"),
    [
        ("keys", "keys.trie", 4),
        ("keys/", "keys.trie", 4),
        ("keys/part-1.parquet", "part-1.trie", 2),
        ("hive%20set", "hive set.trie", 2),
        ("hive set/day=2/?region=us-east-1", "day=2.trie", 1),
    ],
)
def test_13_build_from_a_bucket(here: Path, path: str, output: str, keywords: int) -> None:
    """The artifact is named after the input, and lies here."""
    found = trie("build", f"s3://bucket/{path}", "--quiet", "--json")
    assert found.code == 0, found.stderr
    assert (found.json["output"], found.json["keywords"]) == (output, keywords)
    assert [file.name for file in here.iterdir()] == [output]


def test_13_a_bucket_and_a_folder_of_the_same_rows(here: Path) -> None:
    """One artifact, byte for byte; and by a process of its own, which ends as it should."""
    (here / "keys").mkdir()
    for name in ("part-1", "part-2", "part-10"):
        table = pa.table({"tokens": pa.array(FILES[f"keys/{name}.parquet"], pa.list_(pa.uint32()))})
        pq.write_table(table, here / "keys" / f"{name}.parquet")
    assert trie("build", here / "keys", "-o", "local.trie", "--quiet").code == 0
    found = process("build", "s3://bucket/keys", "--quiet", "--json")
    assert (found.code, found.stderr) == (0, "")
    assert found.json["output"] == "keys.trie"
    assert (here / "keys.trie").read_bytes() == (here / "local.trie").read_bytes()


def test_13_several_inputs_have_no_name(here: Path) -> None:
    parts = [f"s3://bucket/keys/part-{number}.parquet" for number in (1, 2, 10)]
    for inputs in (parts, ["s3://bucket/keys/part-*.parquet"]):
        found = trie("build", *inputs, "--quiet")
        assert found.code == 2
        assert "-o OUT.trie" in found.stderr
        assert list(here.iterdir()) == []
    assert trie("build", *parts, "-o", "keys.trie", "--quiet").code == 0


def test_13_verify_and_lookup_of_a_bucket(here: Path) -> None:
    assert trie("build", "s3://bucket/keys", "--quiet").code == 0
    words = ["verify", "keys.trie", "--quiet", "--json", "--against"]
    parts = [f"s3://bucket/keys/part-{number}.parquet" for number in (1, 2, 10)]
    for inputs in (["s3://bucket/keys"], parts, ["s3://bucket/keys/*.parquet"]):
        found = trie(*words, *inputs)
        assert found.code == 0, found.stderr
        checks = {check["name"]: check for check in found.json["checks"]}
        assert checks["source"]["ok"] and checks["keywords"]["ok"]
    for inputs in (parts[:2], ["s3://bucket/hive set"]):
        found = trie(*words, *inputs)
        assert found.code == 1
        assert found.json["ok"] is False
    found = trie("lookup", "keys.trie", "--input", "s3://bucket/keys", "--json", "--quiet")
    assert (found.code, found.json["found"], found.json["rows"]) == (0, 4, 4)


def test_13_a_bucket_that_is_not_there(here: Path) -> None:
    """Nothing is written; and an artifact is not read before its source is found."""
    for words in (["build"], ["verify", "none.trie", "--against"]):
        found = trie(*words, "s3://nobucket/keys", "--quiet")
        assert found.code == 2
        assert found.stderr.startswith("error: s3://nobucket/keys: no such file or folder")
    assert list(here.iterdir()) == []
