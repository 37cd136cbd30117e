"""The whole chain at full size, by the command lines that a user types: 800 million keywords.

    python -m benchmarks.full_scale [--keywords 8e8] [--folder DIR] [--out JSON] [--phase NAME]...

Generates a key set as Parquet, builds it, verifies it on the CPU and on the GPU against the
Parquet, loads it, and measures searches against the CPU engine. `precision` and `paper_method` come
by `--phase` alone; they are parts of benchmarks/kernels/figures.py. JSON has of each phase what its
command prints with --json, its wall seconds from process start, and the command.

Each phase may take ten minutes. JSON is written after each; a phase that is in it is skipped by the
next run, so that they can be run one by one. A phase that fails is kept under `failed`, and is
tried again. Without a GPU the phases that need one are null.

800 million keywords take some 32 GB of disk, and their build at most 16 GiB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flashtrie
from benchmarks.record import RESULTS, machine
from flashtrie.gpu import devices

_ROOT = Path(__file__).resolve().parents[1]
_KIND, _VOCAB_SIZE, _SEED = "wide", 2_200_000, 0
_SCRATCH = "scratch"
_SHARD_ROWS = 6_250_000
# Bytes a keyword: 9 were measured of Parquet and 5 to 7 of artifacts, at 1 to 100 million keywords;
# scratch is what `trie build --dry-run` says of their 4.3 tokens.
_SHARD_BYTES, _SCRATCH_BYTES, _ARTIFACT_BYTES = 10, 22, 7
# A build may take 15% more than this, and shall stay within 16 GiB.
_MEMORY = "13.5GiB"
_BEAM_WIDTHS, _BATCHES = [100, 200, 400, 600, 1000], [1, 8]
_FIGURES = {"precision": ["precision"], "paper_method": ["cpu", "paper"]}
# What must be the same where a run is taken up again.
_SAME = ("keywords", "kind", "vocab_size", "seed", "chip", "driver", "commit")


@dataclass(frozen=True)
class Phase:
    """A command of `trie`, the file it makes, and those that it takes, in the folder."""

    words: list[str]
    makes: str | None = None
    needs: tuple[str, ...] = ()
    on_gpu: bool = False


class Failed(Exception):
    """A command that did not do what it should; what there is to know of it."""

    def __init__(self, report: dict[str, Any]) -> None:
        """Keep the report."""
        super().__init__(json.dumps(report))
        self.report = report


def phases(given: argparse.Namespace) -> dict[str, Phase]:
    """All of them by name, in order; those of _FIGURES have no words."""
    count = given.keywords
    source, artifact = f"{_KIND}-{count}", f"{_KIND}-{count}.trie"
    shards = max(4, -(-count // _SHARD_ROWS))
    set_of = ["--kind", _KIND, "--vocab-size", str(_VOCAB_SIZE), "--seed", str(_SEED)]
    build = ["-o", artifact, "--vocab-size", str(_VOCAB_SIZE), "--tag", f"kind={_KIND}"]
    build += ["--memory", given.memory, "--tmp-dir", _SCRATCH, "--force"]
    verify = ["verify", artifact, "--against", source, "--device"]
    search = ["bench", artifact, "--queries", str(given.queries), "--against", "cpu"]
    search += [word for width in given.bw for word in ("--bw", str(width))]
    search += [word for batch in given.batch for word in ("--batch", str(batch))]
    both = (source, artifact)
    return {
        "generate": Phase(
            ["generate", source, "--keywords", str(count), *set_of]
            + ["--shards", str(shards), "--force"],
            makes=source,
        ),
        "build": Phase(["build", source, *build], makes=artifact, needs=(source,)),
        "verify_cpu": Phase([*verify, "cpu"], needs=both),
        "verify_gpu": Phase([*verify, "cuda"], needs=both, on_gpu=True),
        "load": Phase(["load", artifact], needs=(artifact,), on_gpu=True),
        "search": Phase(search, needs=(artifact,)),
        **{name: Phase([], needs=(artifact,), on_gpu=True) for name in _FIGURES},
    }


def main() -> None:
    """Run what is not done yet; exit code 1 where a phase failed, 2 where it cannot begin."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--keywords", type=lambda text: int(float(text)), default=800_000_000)
    default = Path(tempfile.gettempdir(), "flashtrie-full-scale")
    parser.add_argument("--folder", type=Path, default=default, help="for keys and artifact")
    parser.add_argument("--out", type=Path, default=RESULTS / "full_scale.json")
    parser.add_argument("--phase", action="append", help="this alone; repeatable")
    parser.add_argument("--memory", default=_MEMORY, help="of the build")
    parser.add_argument("--bw", type=int, nargs="+", default=_BEAM_WIDTHS)
    parser.add_argument("--batch", type=int, nargs="+", default=_BATCHES)
    parser.add_argument("--queries", type=int, default=1000, help="of each row of the search")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a phase")
    given = parser.parse_args()
    known = phases(given)
    for name in given.phase or []:
        if name not in known:
            parser.error(f"there is no phase {name}: {', '.join(known)}")
    chosen = given.phase or [name for name in known if name not in _FIGURES]
    sys.exit(Run(given, known).run(chosen))


class Run:
    """The phases of one key set in one folder, and the JSON of them."""

    def __init__(self, given: argparse.Namespace, known: dict[str, Phase]) -> None:
        """Read what was done before."""
        self._folder: Path = given.folder
        self._out: Path = given.out
        self._timeout: float = given.timeout
        self._known = known
        self._keywords: int = given.keywords
        self._no_gpu = devices.missing()
        head = _head(given.keywords, on_gpu=self._no_gpu is None)
        self._result = head
        if self._out.exists():
            self._result = json.loads(self._out.read_text())
            for name in _SAME:
                if self._result.get(name) != head[name]:
                    _stop(
                        f"{self._out} is of {name} {self._result.get(name)}, and this run of "
                        f"{head[name]}: remove it, or name another --out"
                    )

    def run(self, chosen: list[str]) -> int:
        """Run the chosen phases that are not done, and those that make what they need."""
        (self._folder / _SCRATCH).mkdir(parents=True, exist_ok=True)
        pending = self._pending(chosen)
        self._check_disk(pending)
        for name in pending:
            phase = self._known[name]
            if phase.on_gpu and self._no_gpu:
                _say(f"{name}: not without a GPU ({self._no_gpu.cause})")
                self._keep(name, None)
                continue
            try:
                if name == "build":
                    self._check_plan(phase)
                report = self._figures(name) if name in _FIGURES else self._trie(phase.words)
            except Failed as failed:
                _say(f"{name}: failed: {failed}")
                self._result.setdefault("failed", {})[name] = failed.report
                self._write()
                if phase.makes:
                    return 1  # what follows would be of an older one, or of none
            else:
                self._keep(name, report)
        return 1 if self._result.get("failed") else 0

    def _pending(self, chosen: list[str]) -> list[str]:
        """Chosen phases that are not in the result, and what makes the files that they lack."""
        pending = {name for name in chosen if name not in self._result}
        for name in ("build", "generate"):  # what build needs is known by then
            made = self._known[name].makes or ""
            if (self._folder / made).exists() or name in pending:
                continue
            users = [user for user in pending if made in self._known[user].needs]
            if users:
                _say(f"{name}: again, since {self._folder / made} is not there")
                pending.add(name)
        for name in chosen:
            if name not in pending:
                _say(f"{name}: done before")
        return [name for name in self._known if name in pending]

    def _check_disk(self, pending: list[str]) -> None:
        """Stop where the estimate of what is still to be made does not fit."""
        need, said = 0, []
        for name, what, each in (
            ("generate", "Parquet", _SHARD_BYTES),
            ("build", "scratch", _SCRATCH_BYTES),
            ("build", "artifact", _ARTIFACT_BYTES),
        ):
            if name in pending:
                need += each * self._keywords
                said.append(f"{each} bytes a keyword of {what}")
        if need:
            self._check_free(need, " + ".join(said))

    def _check_plan(self, phase: Phase) -> None:
        """Keep what `trie build --dry-run` says of the Parquet that is there, and check by it."""
        plan = self._trie([*phase.words, "--dry-run"])
        self._keep("plan", plan)
        need, made = plan["scratch"], plan["artifact"]
        said = f"{need:,} bytes of scratch + {made:,} of artifact, by trie build --dry-run"
        self._check_free(need + made, said)

    def _check_free(self, need: int, said: str) -> None:
        free = shutil.disk_usage(self._folder).free
        where = f"{need / 1e9:.2f} GB ({said}), {free / 1e9:.2f} GB are free at {self._folder}"
        if need > free:
            _stop(f"the disk is too small: it takes {where}; name another --folder")
        _say(f"disk: {where}")

    def _trie(self, words: list[str]) -> dict[str, Any]:
        """What a command of `trie` prints with --json, its wall seconds, and the command."""
        command = [sys.executable, "-m", "flashtrie", *words, "--json"]
        seconds, code, stdout = self._process(command, self._folder)
        try:
            report: dict[str, Any] = json.loads(stdout)
        except ValueError:
            report = {"printed": stdout[-500:]}
        ran = {"command": " ".join(["trie", *words]), "wall_seconds": seconds}
        if code != 0:
            raise Failed(ran | {"exit_code": code} | report)
        return report | ran

    def _figures(self, name: str) -> dict[str, Any]:
        """Parts of benchmarks/kernels/figures.py on the artifact."""
        parts, out = _FIGURES[name], (self._folder / f"{name}.json").resolve()
        out.unlink(missing_ok=True)
        artifact = str((self._folder / (self._known["build"].makes or "")).resolve())
        command = [sys.executable, "-m", "benchmarks.kernels.figures", str(out)]
        command += ["--artifact", artifact, "--parts", *parts]
        seconds, code, _ = self._process(command, _ROOT)
        ran = {
            "command": f"python -m benchmarks.kernels.figures --parts {' '.join(parts)}",
            "wall_seconds": seconds,
        }
        made = json.loads(out.read_text()) if out.exists() else {}
        report = {part: made.get(part) for part in parts}
        good = all(part and "failed" not in part for part in report.values())
        if code != 0 or not good:
            raise Failed(ran | {"exit_code": code} | report)
        return report | ran

    def _process(self, command: list[str], folder: Path) -> tuple[float, int, str]:
        """Wall seconds, exit code and stdout; what it says on stderr is passed on."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TRIE_") or name == "TRIE_COMMIT"
        }
        # Where the package is not installed but on the path, it is there by a relative name.
        places = [str(Path(flashtrie.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        started = time.perf_counter()
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as child:
            try:
                stdout, _ = child.communicate(timeout=self._timeout)
            except subprocess.TimeoutExpired:
                child.terminate()
                stdout, _ = child.communicate()
                stdout += f"\nnot done after {self._timeout:g} s"
            except BaseException:
                child.terminate()
                raise
        return round(time.perf_counter() - started, 2), child.returncode, stdout

    def _keep(self, name: str, report: dict[str, Any] | None) -> None:
        """Add it to the JSON; the failure of an earlier run goes."""
        failed = self._result.get("failed", {})
        failed.pop(name, None)
        if not failed:
            self._result.pop("failed", None)
        self._result[name] = report
        self._write()
        if report:
            _say(f"{name}: {report['wall_seconds']} s")

    def _write(self) -> None:
        self._out.parent.mkdir(parents=True, exist_ok=True)
        beside = self._out.with_name(f"{self._out.name}.new")
        beside.write_text(json.dumps(self._result, indent=1) + "\n")
        beside.replace(self._out)


def _head(keywords: int, *, on_gpu: bool) -> dict[str, Any]:
    """The machine and the key set."""
    found = machine()
    if found["commit"] is None:
        _say("the commit is not known: TRIE_COMMIT names it")
    gpu = {"chip": devices.chip(), "driver": devices.driver()} if on_gpu else {}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        found
        | {"processor": found["chip"], "memory_bytes": memory}
        | gpu
        | {"keywords": keywords, "kind": _KIND, "vocab_size": _VOCAB_SIZE, "seed": _SEED}
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _stop(text: str) -> None:
    _say(f"error: {text}")
    sys.exit(2)


if __name__ == "__main__":
    main()
