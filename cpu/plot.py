"""A plot of the search benchmark, made from its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from flashtrie.cpu.bench import Row
from flashtrie.formats.errors import UsageError
from flashtrie.formats.outputs import Read, Replacement, check_output

_WHAT = "the plot"


def check_plot_output(
    path: str | os.PathLike[str], *, force: bool = False, reads: Iterable[Read] = ()
) -> None:
    """Raise what `write_plot` would, as far as that can be told before. `reads`: the inputs."""
    if os.path.splitext(path)[1] != ".png":
        raise UsageError("a plot is a .png file", os.fspath(path))
    check_output(path, _WHAT, force=force, reads=reads)
    _figure()


def write_plot(
    path: str | os.PathLike[str], title: str, rows: Sequence[Row], *, force: bool = False
) -> None:
    """Milliseconds and queries per second over the beam width, a line for each batch size.

    Raises UsageError without matplotlib, OutputError where `path` cannot be written.
    """
    figure = _figure()(figsize=(9, 4), layout="constrained")
    figure.suptitle(title)
    names = {"mean_ms": "mean, ms a batch", "queries_per_second": "queries per second"}
    for axes, (name, label) in zip(figure.subplots(1, 2), names.items(), strict=True):
        for batch in sorted({row.batch for row in rows}):
            line = sorted((row.bw, getattr(row, name)) for row in rows if row.batch == batch)
            axes.plot(*zip(*line, strict=True), marker="o", label=f"batch {batch}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("beam width")
        axes.set_ylabel(label)
        axes.legend()
    with Replacement(path, _WHAT, force=force) as file:
        with file.errors():
            figure.savefig(file.temporary, format="png", dpi=150)
        file.commit()


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "a plot needs matplotlib",
            hint="Install the extra: pip install 'flashtrie[plot]' from the checkout or wheel",
        ) from error
    return Figure
