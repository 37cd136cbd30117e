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
