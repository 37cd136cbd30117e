"""Plots of the search's figures: python -m benchmarks.kernels.plots [FILE.json]."""

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
    rows = result["widths"]["rows"]
    for batch in sorted({row["batch"] for row in rows}):
        line = sorted((r["bw"], r["mean_ms"], r["queries_per_second"]) for r in rows
                      if r["batch"] == batch)  # fmt: skip
        widths, times, rates = zip(*line, strict=True)
        time_axes.plot(widths, times, marker="o", label=f"batch {batch}")
        rate_axes.plot(widths, rates, marker="o", label=f"batch {batch}")
    if "rows" in result.get("precision", {}):
        curve = [(row["bw"], row["precision"]) for row in result["precision"]["rows"]]
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
    """Plot beside the file."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "search-h200.json"
    plot(json.loads(path.read_text()), path.with_suffix(".png"))


if __name__ == "__main__":
    main()
