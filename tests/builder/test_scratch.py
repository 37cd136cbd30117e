from __future__ import annotations

import errno
import fcntl
import os
import secrets
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flashtrie.builder import scratch as scratch_module
from flashtrie.builder.scratch import OutputLock, Scratch, full_disk, scratch_parent
from flashtrie.formats.errors import OutputError, ResourceError, UsageError

HOLD = """
import sys
from flashtrie.builder.scratch import OutputLock, Scratch
lock, scratch = OutputLock(sys.argv[1]), Scratch(sys.argv[2])
open(scratch.folder + "/spill", "w").write("x")
print(scratch.folder, flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds the lock of `output` and a scratch folder in `tmp_dir`."""

    def __init__(self, output: Path, tmp_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, output, tmp_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_lock_names_the_other_pid_and_outlives_no_process(tmp_path: Path) -> None:
    output = tmp_path / "out.trie"
    holder = Holder(output, tmp_path)
    try:
        with pytest.raises(OutputError, match=rf"pid {holder.process.pid}\)") as caught:
            OutputLock(output)
        assert caught.value.exit_code == 2
        assert caught.value.where == str(output)
        with OutputLock(tmp_path / "other.trie"):
            pass
        with Scratch(tmp_path) as scratch:  # a folder in use is left alone
            assert (holder.folder / "spill").exists()
            assert Path(scratch.folder).parent == tmp_path
    finally:
        holder.kill()
    assert (tmp_path / "out.trie.lock").exists()
    assert (holder.folder / "spill").exists()
    with OutputLock(output), Scratch(tmp_path) as scratch:
        assert (tmp_path / "out.trie.lock").read_text() == f"{os.getpid()}\n"
        assert not holder.folder.exists()
    assert os.listdir(tmp_path) == []


def test_lock_within_a_process(tmp_path: Path) -> None:
    with OutputLock(tmp_path / "a"), pytest.raises(OutputError, match=f"pid {os.getpid()}"):
        OutputLock(tmp_path / "a")
    lock = OutputLock(tmp_path / "a")
    lock.release()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_lock_removes_what_dead_builds_left(tmp_path: Path) -> None:
    for name in (".out.trie.1.tmp", ".other.trie.1.tmp", "out.trie"):
        (tmp_path / name).write_text("x")
    with OutputLock(tmp_path / "out.trie"):
        pass
    assert sorted(os.listdir(tmp_path)) == [".other.trie.1.tmp", "out.trie"]


def test_lock_does_not_take_a_file_that_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text("# This file is generated\n")
    with pytest.raises(OutputError, match="no lock of ours"):
        OutputLock(tmp_path / "poetry")
    assert (tmp_path / "poetry.lock").read_text() == "# This file is generated\n"


def test_lock_in_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file or directory"):
        OutputLock(tmp_path / "missing" / "out.trie")


def test_one_of_many_threads_has_the_lock(tmp_path: Path) -> None:
    inside = threading.Lock()
    taken = []

    def work() -> None:
        for _ in range(50):
            try:
                with OutputLock(tmp_path / "out.trie"):
                    assert inside.acquire(blocking=False)
                    taken.append(1)
                    inside.release()
            except OutputError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken
    assert os.listdir(tmp_path) == []


def test_scratch_goes_with_all_in_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Scratch(tmp_path) as scratch:
        folder = Path(scratch.folder)
        assert folder.name.startswith("flashtrie-")
        (folder / "ranges" / "0").mkdir(parents=True)
        (folder / "ranges" / "0" / "spill").write_text("x")
        (folder / "spill").write_text("x")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    scratch.remove()


def test_only_dead_scratch_is_removed(tmp_path: Path) -> None:
    names = ["flashtrie-data", "flashtrie-0123456789abcdef0", "flashtrie-ABCDEF0123456789"]
    for name in names:
        (tmp_path / name).mkdir()
    full = tmp_path / "flashtrie-0000000000000001"  # something else's: it has no lock
    full.mkdir()
    (full / "file").write_text("x")
    (tmp_path / "flashtrie-0000000000000002").mkdir()  # killed before it had its lock
    dead = tmp_path / "flashtrie-0000000000000003"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "spill").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").touch()
    (tmp_path / "flashtrie-0000000000000004").symlink_to(outside)
    with Scratch(tmp_path):
        pass
    assert sorted(os.listdir(tmp_path)) == sorted(
        [*names, full.name, "flashtrie-0000000000000004", "outside"]
    )
    assert (outside / "lock").exists()


def test_scratch_while_others_clean_up(tmp_path: Path) -> None:
    failures = []

    def work() -> None:
        try:
            for _ in range(30):
                with Scratch(tmp_path) as scratch:
                    Path(scratch.folder, "spill").write_text("x")
                    assert Path(scratch.folder, "spill").exists()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(tmp_path) == []


def test_a_folder_taken_for_dead_before_its_lock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = iter(["0" * 16, "1" * 16, "2" * 16, "3" * 16])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(tokens))
    lock, flock, mkdir = scratch_module._lock, fcntl.flock, os.mkdir

    def removed_after_mkdir(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        if path.endswith("0" * 16):
            scratch_module._remove_if_dead(path)

    def taken_by_another(descriptor: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "1" * 16 in path:
            other = os.open(path, os.O_RDWR)
            flock(other, fcntl.LOCK_EX)
            try:
                return lock(descriptor)
            finally:
                scratch_module._remove(os.path.dirname(path))
                os.close(other)
        if "2" * 16 in path:
            scratch_module._remove(os.path.dirname(path))
        return lock(descriptor)

    monkeypatch.setattr(os, "mkdir", removed_after_mkdir)
    monkeypatch.setattr(scratch_module, "_lock", taken_by_another)
    with Scratch(tmp_path) as scratch:
        assert scratch.folder.endswith("3" * 16)
        assert os.listdir(tmp_path) == [f"flashtrie-{'3' * 16}"]


def test_bad_tmp_dir(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        Scratch(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory"):
        Scratch(tmp_path / "file")
    with pytest.raises(UsageError, match="--tmp-dir"):
        Scratch("/proc")  # nobody can write there, root included


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_module, "free_bytes", lambda _: 1234)
    with pytest.raises(ResourceError) as caught, full_disk(tmp_path, 5_000_000):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.where == str(tmp_path)
    assert caught.value.cause == "it needs about 5,000,000 bytes and 1,234 bytes are free"
    with pytest.raises(FileNotFoundError), full_disk(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "x")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ResourceError):
        OutputLock(tmp_path / "out.trie")
    monkeypatch.undo()
    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(ResourceError):
        Scratch(tmp_path)
    assert os.listdir(tmp_path) == []


def test_scratch_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIE_TMP_DIR", raising=False)
    assert scratch_parent(None, tmp_path / "out.trie") == str(tmp_path)
    monkeypatch.setenv("TRIE_TMP_DIR", "/scratch")
    assert scratch_parent(None, tmp_path / "out.trie") == "/scratch"
    assert scratch_parent("/fast", tmp_path / "out.trie") == "/fast"
