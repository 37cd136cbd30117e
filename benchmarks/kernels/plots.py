"""Plots of the search's figures: python -m benchmarks.kernels.plots [FILE.json]...

Of files of benchmarks/kernels/figures.py and of benchmarks/full_scale.py, each beside its file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS


def plot(result: dict[str, Any], path: Path) -> None:
    """Milliseconds and queries per second by beam width, a line a batch; precision@100."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    figure.suptitle(f"{result['keywords']:,} keywords, {result['kind']}, {result['chip']}")
    time_axes, rate_axes, precision_axes = figure.subplots(1, 3)
    # The search of the full scale is what `trie bench` prints, its precision a part in a phase.
    rows = result["widths" if "widths" in result else "search"]["rows"]
    precision = result.get("precision") or {}
    precision = precision.get("precision", precision)
    for batch in sorted({row["batch"] for row in rows}):
        line = sorted((r["bw"], r["mean_ms"], r["queries_per_second"]) for r in rows
                      if r["batch"] == batch)  # fmt: skip
        widths, times, rates = zip(*line, strict=True)
        time_axes.plot(widths, times, marker="o", label=f"batch {batch}")
        rate_axes.plot(widths, rates, marker="o", label=f"batch {batch}")
    if "rows" in precision:
        curve = [(row["bw"], row["precision"]) for row in precision["rows"]]
        precision_axes.plot(*zip(*curve, strict=True), marker="o")
    time_axes.set(ylabel="mean, ms a batch", yscale="log")
    rate_axes.set(ylabel="queries per second", yscale="log")
    precision_axes.set(ylabel="precision@100", ylim=(0, 1))
    for axes in (time_axes, rate_axes, precision_axes):
        axes.set_xlabel("beam width")
        axes.grid(alpha=0.3)
    time_axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Plot each beside its file."""
    known = [RESULTS / name for name in ("search-h200.json", "full_scale.json")]
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else known:
        if path.exists():
            plot(json.loads(path.read_text()), path.with_suffix(".png"))


if __name__ == "__main__":
    main()
