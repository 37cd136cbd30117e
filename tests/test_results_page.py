"""Generated pages, and figures in other pages, are what benchmarks/results has."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def load(name: str) -> Any:
    """A generator in docs, which imports what stands beside it."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """docs/results.py."""
    monkeypatch.syspath_prepend(DOCS)
    return load("results")


@pytest.mark.parametrize("name", ["benchmarks", "reliability", "results"])
def test_the_page_is_what_the_generator_makes(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    module = load(name)
    assert module.PAGE.read_text() == module.page(), f"run python docs/{name}.py"


def test_pages_have_the_figures_of_the_files(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    pages = load("figures").pages()
    assert {page.name for page in pages} > {"README.md", "ARCHITECTURE.md", "nightly.md"}
    for page, text in pages.items():
        assert page.read_text() == text, "run python docs/figures.py"


def test_what_is_said_of_marisa_trie(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(DOCS)
    figures = load("figures")
    peer = {"bits_per_keyword": 40.0, "build_seconds": 9.0, "lookups_per_second": 100}
    ours = {"bits_per_keyword": 30.0, "build_seconds": 3.0, "lookups_per_second": 250}
    sets = {"narrow": ours | {"keywords": 12_600_000, "marisa": {"codes_3": peer}}}
    grown = {
        "kind": "wide",
        "marisa": [
            {"keywords": count, "bits_per_keyword": 41.0, "build_seconds": seconds}
            for count, seconds in ((1_000_000, 1.0), (100_000_000, 40.0))
        ],
        "rows": [
            {"keywords": count, "bits_per_keyword": 41.1, "wall_seconds": seconds}
            for count, seconds in ((1_000_000, 2.0), (100_000_000, 10.0), (100_000_000, 20.0))
        ],
    }
    (tmp_path / "marisa.json").write_text(json.dumps({"sets": sets}))
    (tmp_path / "build.json").write_text(json.dumps(grown))
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    said = figures._marisa()
    for expected in (
        "an artifact is 25% smaller on 13 million keywords of `narrow`, and equal in size on 100 ",
        "3.0 to 4.0 times as fast",
        "2.5 to 2.5 times as fast as a loop",
        "On 1 million keywords of `wide` the build is slower, 2.00 s against 1.00 s",
    ):
        assert expected in said, expected


def test_what_the_tools_of_compute_sanitizer_count(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    tools = {
        "memcheck": {"says": ["equal", "========= ERROR SUMMARY: 0 errors"]},
        "racecheck": {"says": "RACECHECK SUMMARY: 2 hazards displayed (1 errors, 1 warnings)"},
        "synccheck": {"says": ["did not run"]},
    }
    said = load("search_figures").sanitizers(tools)
    assert said == "memcheck: 0 errors; racecheck: 2 hazards; synccheck: did not run"


def test_every_row_has_all_its_cells_and_a_file_that_is_there(generator):
    lines = [line for line in generator.page().splitlines() if line.startswith("| ")]
    assert len(lines) > 5
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 6 and all(cells), line
        if cells[-1].startswith("`"):
            assert (generator.RESULTS / cells[-1].strip("`")).exists(), line


def test_a_claim_without_a_file_has_no_row(generator, tmp_path, monkeypatch):
    shutil.copy(generator.RESULTS / "marisa.json", tmp_path)
    monkeypatch.setattr(generator, "RESULTS", tmp_path)
    text = generator.page()
    assert "22% smaller" in text
    assert "1.91 ms" not in text and "Qrita" not in text


def test_rows_of_the_full_scale(generator, tmp_path, monkeypatch):
    row = {"bw": 1000, "mean_ms": 0.2, "p99_ms": 0.3, "speedup": 20.0, "equal": True}
    result = {
        "chip": "a GPU",
        "driver": "1.2",
        "cores": 16,
        "commit": "0123456789abcdef",
        "keywords": 800_000_000,
        "kind": "wide",
        "seed": 0,
        "build": {"bytes": 4_100_000_000, "bits_per_keyword": 40.5},
        "search": {
            "device": "cuda",
            "rows": [
                row | {"batch": 1, "queries_per_second": 5000.0},
                row | {"batch": 8, "queries_per_second": 40000.0},
            ],
        },
        "precision": {
            "precision": {
                "queries": 64,
                "rows": [{"bw": 100, "precision": 0.5}, {"bw": 1000, "precision": 0.75}],
            }
        },
        "paper_method": {
            "paper": [{"cores": 16, "batch": 1, "mean_ms": 40.0}],
            "cpu": [{"cores": "all", "batch": 8, "mean_ms": 6.0}],
        },
    }
    monkeypatch.setattr(generator, "RESULTS", tmp_path)

    def page(**changes: Any) -> str:
        (tmp_path / "full_scale.json").write_text(json.dumps(result | changes))
        text: str = generator.page()
        return text

    for expected in (
        "| 4.10 GB (40.5 bits a keyword without the alphabet) |",
        "| 0.200 ms, 0.300 ms |",
        "| 40,000 |",
        "| equal bit for bit |",
        "| 200x (40.0 ms) |",
        "| 30x (6.0 ms) |",
        "| 0.50 to 0.75 |",
        "a GPU, driver 1.2; 800,000,000 keywords of kind wide, seed 0; commit 012345678",
    ):
        assert expected in page(), expected
    alone = page(precision=None, paper_method=None)
    assert "| 20x (4.0 ms) |" in alone and "our CPU engine on 16 cores" in alone
    assert "precision@100" not in alone and "the paper's method" not in alone
    assert "1.91 ms" not in page(search=None, precision=None)
    of_cpu = page(search=result["search"] | {"device": "cpu"})  # type: ignore[operator]
    assert "1.91 ms" not in of_cpu


def test_rows_of_sampling(generator, tmp_path, monkeypatch):
    row = {"batch": 64, "vocab": 131072, "logits": "power", "mode": "k"}
    result = {
        "chip": "a GPU",
        "driver": "1.2",
        "commit": "0123456789abcdef",
        "seed": 0,
        "rows": [
            row | {"result": "mask", "microseconds": 40.0, "peak_bytes": 5},
            row | {"result": "PyTorch sort", "microseconds": 800.0, "peak_bytes": 200},
        ],
    }
    monkeypatch.setattr(generator, "RESULTS", tmp_path)
    path = tmp_path / "sampling-h200.json"
    path.write_text(json.dumps(result))
    text = generator.page()
    assert "| 20.0x (40.0 us against 800 us) |" in text
    assert "| 2.5% of the sort's |" in text
    (time,) = (line for line in text.splitlines() if line.startswith("| time of k,"))
    assert time.split(" | ")[1].startswith("— (")  # the paper compares with other kernels
    path.write_text(json.dumps(result | {"provenance": "by hand"}))
    assert "sampling-h200.json: by hand" in generator.page()
