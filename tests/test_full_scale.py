"""benchmarks/full_scale.py runs its whole chain on a small key set, and goes on where it ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import full_scale

from flashtrie.gpu import devices

KEYWORDS = 20_000


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without a GPU, and with a TRIE_ variable that no command is to see."""
    command = [sys.executable, "-m", "benchmarks.full_scale", "--keywords", str(KEYWORDS)]
    command += ["--folder", str(folder / "work"), "--out", str(folder / "out.json")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TRIE_DEVICE": "cuda"}
    return subprocess.run(
        [*command, "--bw", "2", "4", "--queries", "8", *words],
        cwd=Path(full_scale.__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def result(folder: Path) -> dict[str, Any]:
    """The JSON that there is."""
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


def test_the_chain_on_a_cpu(tmp_path):
    done = run(tmp_path, "--phase", "generate", "--timeout", "0.01")
    assert done.returncode == 1, done.stderr
    assert "not done after 0.01 s" in result(tmp_path)["failed"]["generate"]["printed"]

    done = run(tmp_path, "--phase", "verify_gpu", "--phase", "build")  # and what build needs
    assert done.returncode == 0, done.stderr
    assert "verify_gpu: not without a GPU" in done.stderr
    found = result(tmp_path)
    assert "failed" not in found and found["verify_gpu"] is None
    assert found["generate"]["keywords"] == found["build"]["keywords"] == KEYWORDS
    assert found["plan"]["rows"] == KEYWORDS
    assert found["build"]["command"].startswith("trie build wide-20000 -o wide-20000.trie ")

    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "generate: done before" in done.stderr
    after = result(tmp_path)
    assert {name: after[name] for name in found} == found
    assert set(after) - set(found) == {"verify_cpu", "load", "search"}
    assert after["load"] is None
    assert after["verify_cpu"]["ok"]
    assert after["search"]["kind"] == after["kind"] == "wide"
    rows = [(row["bw"], row["batch"], row["equal"]) for row in after["search"]["rows"]]
    assert rows == [(2, 1, True), (2, 8, True), (4, 1, True), (4, 8, True)]
    assert not list((tmp_path / "work" / "scratch").iterdir())

    done = run(tmp_path, "--keywords", "30000")
    assert done.returncode == 2
    assert "is of keywords 20000, and this run of 30000" in done.stderr


def test_a_disk_that_is_too_small(tmp_path, monkeypatch, capsys):
    words = ["full_scale", "--folder", str(tmp_path / "work"), "--out", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", words)
    free = shutil.disk_usage(tmp_path)._replace(free=30 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(SystemExit) as stopped:
        full_scale.main()
    assert stopped.value.code == 2
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith("error: the disk is too small: it takes 31.20 GB (10 bytes a keyword ")
    assert "30.00 GB are free" in said
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("failed", [False, True])
def test_parts_of_the_figures(tmp_path, monkeypatch, failed):
    """As on a machine with a GPU, where benchmarks/kernels/figures.py writes its file."""
    monkeypatch.setattr(devices, "missing", lambda: None)
    monkeypatch.setattr(devices, "chip", lambda: "a GPU")
    monkeypatch.setattr(devices, "driver", lambda: "1.2")
    words = ["full_scale", "--keywords", "9", "--folder", str(tmp_path)]
    words += ["--out", str(tmp_path / "out.json"), "--phase", "paper_method"]
    monkeypatch.setattr(sys, "argv", words)
    (tmp_path / "wide-9.trie").touch()

    def figures(_: Any, command: list[str], folder: Path) -> tuple[float, int, str]:
        module, out, option, artifact, *rest = command[2:]
        assert module == "benchmarks.kernels.figures" and folder == full_scale._ROOT
        assert option == "--artifact" and artifact == str(tmp_path / "wide-9.trie")
        assert rest == ["--parts", "cpu", "paper"]
        paper = {"failed": "of something"} if failed else [{"batch": 1}]
        Path(out).write_text(json.dumps({"chip": "a GPU", "cpu": [{"batch": 8}], "paper": paper}))
        return 1.5, 0, ""

    monkeypatch.setattr(full_scale.Run, "_process", figures)
    with pytest.raises(SystemExit) as stopped:
        full_scale.main()
    found = result(tmp_path)
    assert (found["chip"], found["driver"]) == ("a GPU", "1.2")
    assert stopped.value.code == (1 if failed else 0)
    entry = (found["failed"] if failed else found)["paper_method"]
    assert entry["cpu"] == [{"batch": 8}] and entry["wall_seconds"] == 1.5
    assert ("paper_method" in found) is not failed
