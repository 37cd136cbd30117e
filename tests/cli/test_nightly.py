"""docs/nightly.md: its commands, the job, the unit and the cron line run as they stand."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flashtrie
from tests.conftest import write_parquet

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "nightly.md").read_text()
UNIT, TIMER = "flashtrie-nightly.service", "flashtrie-nightly.timer"
ROWS = [[number % 5, number] for number in range(40)]

Done = subprocess.CompletedProcess[str]


def shell(command: str, folder: Path, **environment: str) -> Done:
    """By /bin/sh, with `trie` on the PATH, and no GPU."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "-euc", command],
        cwd=folder,
        env=os.environ | {"PATH": path, "TRIE_DEVICE": "cpu"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def export(folder: Path, rows: list[list[int]]) -> None:
    """What comes every night."""
    (folder / "export").mkdir(exist_ok=True)
    write_parquet(folder / "export" / "part-00000.parquet", rows)


def job(folder: Path, **environment: str) -> Done:
    """The script on export and serve."""
    return shell(f"{DOCS / 'nightly.sh'} export serve", folder, **environment)


def names(folder: Path) -> set[str]:
    """What the job leaves."""
    return {path.name for path in (folder / "serve").iterdir()} - {"nightly.lock", "log"}


def logs(folder: Path) -> list[Path]:
    """The logs, the newest last."""
    return sorted((folder / "serve" / "log").iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an export, and one to serve from."""
    export(tmp_path, ROWS)
    (tmp_path / "serve").mkdir()
    return tmp_path


def test_three_nights(place):
    """The second file replaces the first; the third, of half an export, is refused."""
    live = place / "serve" / "keywords.trie"
    done = job(place)
    assert done.returncode == 0, done.stderr
    assert names(place) == {"keywords.trie"}
    first = live.read_bytes()

    with flashtrie.open(live) as trie:  # as a search holds it
        export(place, [*ROWS[1:], [7, 7, 7]])
        done = job(place)
        assert done.returncode == 0, done.stderr
        assert trie.lookup([ROWS[0], [7, 7, 7]]).tolist() == [trie.lookup([ROWS[0]])[0], -1]
    assert names(place) == {"keywords.trie", "yesterday.trie"}
    assert (place / "serve" / "yesterday.trie").read_bytes() == first
    second = live.read_bytes()
    with flashtrie.open(live) as trie:
        found = trie.lookup([ROWS[0], [7, 7, 7]]).tolist()
        assert found[0] == -1 and found[1] >= 0
    told = {path.stem: json.loads(path.read_text()) for path in logs(place)[-1].iterdir()}
    assert set(told) == {"build", "verify", "diff"}
    assert told["build"]["keywords"] == len(ROWS) and told["verify"]["ok"]
    assert (told["diff"]["added"], told["diff"]["removed"]) == (1, 1)

    export(place, ROWS[:20])
    done = job(place)
    assert done.returncode == 1
    assert names(place) == {"keywords.trie", "yesterday.trie"}
    assert live.read_bytes() == second
    assert (place / "serve" / "yesterday.trie").read_bytes() == first
    error = json.loads(logs(place)[-1].joinpath("build.json").read_text())
    assert error["exit_code"] == 1
    assert json.dumps(error) in done.stderr  # where the alert takes it from

    assert job(place, TRIE_BUILD_MAX_SHRINK="1").returncode == 0
    assert (place / "serve" / "yesterday.trie").read_bytes() == second


def test_a_file_that_verify_refuses_is_not_put_in_place(place):
    """Verify reads another export than build did: one that came in between."""
    assert job(place).returncode == 0
    before = (place / "serve" / "keywords.trie").read_bytes()
    wrapper = place / "bin" / "trie"
    wrapper.parent.mkdir()
    trie = Path(sys.executable).parent / "trie"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$1" != verify ] || cp other.parquet export/part-00000.parquet\n'
        f'exec {trie} "$@"\n'
    )
    wrapper.chmod(0o755)
    write_parquet(place / "other.parquet", [*ROWS, [9, 9, 9]])
    done = shell(f'PATH="{wrapper.parent}:$PATH" {DOCS / "nightly.sh"} export serve', place)
    assert done.returncode == 1
    assert names(place) == {"keywords.trie"}
    assert (place / "serve" / "keywords.trie").read_bytes() == before
    assert not json.loads(logs(place)[-1].joinpath("verify.json").read_text())["ok"]


def test_values_are_kept(place):
    """By the variables that the page names, which verify needs too, to compare them."""
    named = re.findall(r"`(TRIE_\w+_VALUES)`", PAGE)
    write_parquet(place / "export" / "part-00000.parquet", ROWS, list(range(100, 140)))
    done = job(place, **dict.fromkeys(named, "value"))
    assert done.returncode == 0, done.stderr
    with flashtrie.open(place / "serve" / "keywords.trie") as trie:
        assert [trie.value(key_id) for key_id in trie.lookup(ROWS)] == list(range(100, 140))
    checks = json.loads(logs(place)[-1].joinpath("verify.json").read_text())["checks"]
    (said,) = (check["detail"] for check in checks[-3:] if check["name"] == "values")
    assert said != "there are none" and len(named) == 2


def test_a_folder_that_is_not_there(place):
    done = shell(f"{DOCS / 'nightly.sh'} export nowhere", place)
    assert done.returncode == 2
    (place / "serve" / "log").touch()
    done = job(place)
    assert done.returncode == 2
    assert "log" in done.stderr


def test_two_at_a_time(place):
    done = shell(f"flock serve/nightly.lock {DOCS / 'nightly.sh'} export serve", place)
    assert done.returncode == 2
    assert "another one runs in serve" in done.stderr
    assert names(place) == set()


def test_the_commands_of_the_page(tmp_path):
    """All of them in order, in one folder that has the docs."""
    (tmp_path / "docs").symlink_to(DOCS)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    done = shell("\n".join(["set -x", *blocks]), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "exit code 1" in done.stdout
    after = done.stdout.split("exit code 1")[1]
    assert re.search(r"^keywords +110,000$", after, re.MULTILINE)  # of the second night
    plan = done.stdout[done.stdout.rindex("rows ") :]
    named = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.split("## Disk and memory")[1], re.M)
    for name in re.findall(r"`(\w+)`", " ".join(named)):
        assert re.search(rf"^{name} ", plan, re.MULTILINE), name
    with flashtrie.open(tmp_path / "serve" / "keywords.trie") as trie:
        assert len(trie) == 100_000  # of the first night again
    assert (tmp_path / "changes.parquet").exists()


@pytest.mark.parametrize("name", ["nightly.sh", UNIT, TIMER])
def test_the_page_has_the_files_as_they_are(name):
    assert f"\n{(DOCS / name).read_text()}```\n" in PAGE


def test_the_exit_codes_of_the_page():
    rows = PAGE.split("## Exit codes and logs")[1].split("\n\n")[1].splitlines()[2:]
    assert {row.split("|")[1].strip() for row in rows} == {"0", "1", "2", "130, 143"}


def unit(name: str) -> configparser.RawConfigParser:
    """A unit file. `Environment` may be there more than once: the lines of it are joined."""
    text = re.sub(r"\nEnvironment=", "\n ", (DOCS / name).read_text()).replace(
        "\n PATH", "\nEnvironment=PATH"
    )
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def installed(text: str, place: Path) -> str:
    """A text of the page with the folders that it names somewhere below `place`."""
    (place / "opt" / ".venv").mkdir(parents=True, exist_ok=True)
    for name, target in (
        ("docs", DOCS),
        (".venv/bin", Path(sys.executable).parent),
    ):
        link = place / "opt" / name
        if not link.exists():
            link.symlink_to(target)
    (place / "scratch").mkdir(exist_ok=True)
    for old, new in (
        ("/opt/flashtrie", place / "opt"),
        ("/srv/export/keywords", place / "export"),
        ("/srv/flashtrie", place / "serve"),
        ("/srv/scratch", place / "scratch"),
    ):
        text = text.replace(old, str(new))
    return text


def test_what_the_unit_runs(place):
    service = unit(UNIT)["Service"]
    assert service["Type"] == "oneshot"
    command = installed(service["ExecStart"], place)
    assert "/docs/nightly.sh " in command
    environment = installed(service["Environment"].replace("\n", " "), place)
    assert "MIN_KEYWORDS=700e6" in environment
    done = shell(f"env -i {environment} TRIE_DEVICE=cpu {command}", place)
    assert done.returncode == 1  # so few of 700 million
    assert "700,000,000" in done.stderr
    environment = environment.replace("700e6", "40")
    done = shell(f"env -i {environment} TRIE_DEVICE=cpu {command}", place)
    assert done.returncode == 0, done.stderr
    assert names(place) == {"keywords.trie"}


def test_the_timer_and_the_unit_are_right(place):
    """As systemd says, where it is; else as far as configparser can tell."""
    assert unit(TIMER)["Timer"]["OnCalendar"] == "*-*-* 02:30:00"
    assert unit(TIMER)["Install"]["WantedBy"] == "timers.target"
    if not shutil.which("systemd-analyze"):
        return
    for name in (UNIT, TIMER):
        text = installed((DOCS / name).read_text(), place).replace("User=flashtrie", "User=root")
        (place / name).write_text(text)
    done = shell(f"systemd-analyze verify {place / UNIT} {place / TIMER}", place)
    mine = [line for line in done.stderr.splitlines() if "flashtrie-nightly" in line]
    assert not mine and done.returncode == 0, done.stderr


def test_the_cron_line(place):
    line = re.findall(r"^```cron\n(.*)\n```", PAGE, re.MULTILINE)[0]
    assert "%" not in line  # a line break, to cron
    minute, hour, *days, command = line.split(" ", 5)
    assert (minute, hour, days) == ("30", "2", ["*", "*", "*"])
    command = installed(command, place)
    done = shell(command, place)
    assert "700,000,000" in done.stdout  # the mail
    done = shell(command.replace("700e6", "40"), place)
    assert done.stdout == ""
    assert names(place) == {"keywords.trie", "nightly.log"}
