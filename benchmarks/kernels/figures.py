"""The figures of the search on one GPU: compare with the CPU engine, then time.

    python -m benchmarks.kernels.figures OUT.json [--artifact FILE] [--keywords 100e6] [--parts ...]

Writes chip, driver, set, seed, commit and a part each. Nothing counts whose results are not
equal to the CPU engine's bit for bit. `python docs/benchmarks.py` makes the page of it, `python
-m benchmarks.kernels.plots` the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import flashtrie
from benchmarks.kernels import precision, tools
from benchmarks.kernels.variants import VARIANTS
from benchmarks.paper_method import measure_paper
from flashtrie.builder.generate import generate
from flashtrie.cpu.bench import Row, by_clock, measure
from flashtrie.cpu.full_queries import Drawer, FullQueries, draw_full
from flashtrie.cpu.machine import commit, processor
from flashtrie.cpu.queries import QueryMaker
from flashtrie.gpu.devices import chip, driver
from flashtrie.gpu.timing import ByEvents
from flashtrie.gpu.traffic import Traffic

STEPS, PROPOSALS, SEED = 8, 1000, 0
BEAM_WIDTHS = (1000, 600, 400, 200, 100)
BATCHES = (1, 8, 64, 256)
DIFFERENT = 64  # queries in rotation
TIMED = 6400  # queries a row
TIMED_OF_VARIANTS = 1920
PARTS = ("widths", "cpu", "paper", "precision", "variants", "profile", "sanitize")


def main() -> None:
    """Measure and write; a part that fails says so in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--keywords", type=float, default=100e6)
    parser.add_argument("--work", type=Path, default=Path("/tmp/flashtrie-figures"))
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    artifact = arguments.artifact or _artifact(arguments.work, int(arguments.keywords))
    with flashtrie.open(artifact) as trie:
        figures = Figures(trie)
        result = figures.head()
        for part in arguments.parts:
            started = time.monotonic()
            try:
                result[part] = getattr(figures, part)()
            except Exception as error:  # the other parts are still worth having
                result[part] = {"failed": repr(error)}
            seconds = time.monotonic() - started
            print(f"{part}: {seconds:.1f} s: {json.dumps(result[part])}", flush=True)
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")


class Figures:
    """The parts of the figures, by name."""

    def __init__(self, trie: flashtrie.Trie) -> None:
        """Of an open artifact."""
        self.trie = trie
        self.device = trie.to_device()
        self.timer = ByEvents(self.device)
        self.drawer = Drawer(QueryMaker(trie, STEPS, PROPOSALS, SEED))
        self.full: dict[int, FullQueries] = {}

    def head(self) -> dict[str, Any]:
        """What was measured on what; loading once more, with the kernels compiled."""
        loaded = self.trie.to_device().report
        return {
            "chip": chip(),
            "driver": driver(),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "kind": self.trie.artifact.header.tags.get("kind"),
            "keywords": len(self.trie),
            "steps": STEPS,
            "top_k": PROPOSALS,
            "seed": SEED,
            "different": DIFFERENT,
            "commit": commit(),
            "load": {
                "bytes": loaded.bytes,
                "derived_bytes": loaded.derived,
                "seconds": round(loaded.seconds, 4),
                "gigabytes_per_second": round(loaded.gigabytes_per_second, 2),
            },
        }

    def widths(self) -> dict[str, Any]:
        """Every beam width and batch, as `trie bench --against cpu` measures them."""
        traffic = Traffic(self.device)
        rows = [
            measure(
                self._full(beam_width),
                beam_width,
                batch,
                TIMED,
                self.device,
                timer=self.timer,
                traffic=traffic,
                against=self.trie,
            )
            for beam_width in BEAM_WIDTHS
            for batch in BATCHES
        ]
        rate = round(traffic.sectors_per_second)
        return {"random_sectors_per_second": rate, "rows": list(map(_rounded, rows))}

    def variants(self) -> list[dict[str, Any]]:
        """Every variant at beam width 1000."""
        full = self._full(1000)
        rows = []
        for variant in VARIANTS:
            self.device.searcher.changes = dict(variant.changes)
            try:
                made = [
                    measure(
                        full,
                        1000,
                        batch,
                        TIMED_OF_VARIANTS,
                        self.device,
                        timer=self.timer,
                        against=self.trie if batch == 64 else None,
                    )
                    for batch in (1, 8, 64)
                ]
                row = {"rows": list(map(_rounded, made)), "equal": made[-1].equal}
            except Exception as error:  # a variant that fails is dropped, the others are not
                row = {"failed": repr(error)}
            finally:
                self.device.searcher.changes = {}
            rows.append({"name": variant.name, "idea": variant.idea} | row)
        return rows

    def cpu(self) -> list[dict[str, Any]]:
        """Our own CPU engine on the same queries: one core and all."""
        full, rows = self._full(1000), []
        for cores, batch in ((1, 1), (None, 1), (None, 8), (None, 64)):
            engine: Any = _OneCore(self.trie) if cores else self.trie
            row = measure(full, 1000, batch, DIFFERENT * 2, engine, timer=by_clock(engine))
            rows.append({"cores": cores or "all"} | _rounded(row))
        return rows

    def paper(self) -> list[dict[str, Any]]:
        """The paper's method on the CPU: one core and all."""
        return measure_paper(self.trie, self._full(1000).queries, 1000)

    def precision(self) -> dict[str, Any]:
        """Precision@100 by beam width."""
        return precision.curve(self.trie, self.device, self._full(1000).queries)

    def profile(self) -> list[dict[str, Any]]:
        """What the profiler counts in one launch, batch 1 and 64."""
        return [tools.profile(Path(self.trie.artifact.path), batch) for batch in (1, 64)]

    def sanitize(self) -> dict[str, Any]:
        """Errors that compute-sanitizer finds in the small case."""
        return {tool: tools.sanitize(tool, seconds) for tool, seconds in tools.TOOLS.items()}

    def _full(self, beam_width: int) -> FullQueries:
        if beam_width not in self.full:
            self.full[beam_width] = draw_full(
                self.drawer, self.device, beam_width, STEPS, DIFFERENT, len(self.trie)
            )
        return self.full[beam_width]


class _OneCore:
    """The CPU engine on one core."""

    def __init__(self, trie: flashtrie.Trie) -> None:
        self._trie = trie

    def search(self, *arguments: Any, **options: Any) -> Any:
        return self._trie.search(*arguments, threads=1, **options)


def _rounded(row: Row) -> dict[str, Any]:
    """A row with as many digits as mean something."""
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in row.as_json().items()
    }


def _artifact(work: Path, keywords: int) -> Path:
    work.mkdir(parents=True, exist_ok=True)
    path = work / f"wide-{keywords}.trie"
    if not path.exists():
        generate(work / "rows", keywords, kind="wide", force=True)
        flashtrie.build([work / "rows"], path, tags={"kind": "wide"})
    return path


if __name__ == "__main__":
    main()
