"""`trie bench`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flashtrie.cli.options import (
    Artifact,
    Device,
    Force,
    Json,
    Quiet,
    choose_device,
    find_artifact,
    option,
)
from flashtrie.cli.output import Output, facts, table
from flashtrie.cli.progress import progress

SEED = 0

Suite = Annotated[Literal["search"], option("What to measure.")]
BeamWidths = Annotated[list[int] | None, option("Beam width; repeatable. [default: 1000]", "B")]
Batches = Annotated[
    list[int] | None, option("Queries searched at a time; repeatable. [default: 1]", "N")
]
TopK = Annotated[int, option("Proposals of each step.", "K")]
Steps = Annotated[int, option("Steps of a query.", "T")]
Queries = Annotated[int, option("Queries to time, in at most 30 s for each row.", "N")]
Against = Annotated[
    Literal["cpu"] | None, option("Compare speed and results; exit code 1 where they differ.")
]
SaveQueries = Annotated[str | None, option("Write the queries of the last row.", "FILE")]
Plot = Annotated[str | None, option("Plot the rows; needs flashtrie[plot].", "OUT.png")]


def bench(
    artifact: Artifact = None,
    suite: Suite = "search",
    bw: BeamWidths = None,
    batch: Batches = None,
    top_k: TopK = 1000,
    steps: Steps = 8,
    queries: Queries = 1000,
    device: Device = "auto",
    against: Against = None,
    save_queries: SaveQueries = None,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure searches with queries made from the artifact itself.

    A row for each beam width and batch. Only queries that keep the beam full are timed. FILE is npz
    or safetensors, as `trie search --queries` reads it.
    """
    output = Output(json, quiet)
    path = find_artifact(artifact)
    choose_device(device, output)
    import flashtrie
    from flashtrie.cpu import bench as library
    from flashtrie.cpu.machine import commit, processor
    from flashtrie.cpu.plot import check_plot_output, write_plot
    from flashtrie.cpu.query_files import check_queries_output, write_queries

    if save_queries:
        check_queries_output(save_queries, force=force)
    if plot:
        check_plot_output(plot, force=force)
    output.note_if_compiling()
    with flashtrie.open(path) as trie, progress(output) as report:
        rows, used = library.bench(
            trie,
            beam_widths=bw or [1000],
            batches=batch or [1],
            top_k=top_k,
            steps=steps,
            queries=queries,
            seed=SEED,
            against=trie if against else None,
            progress=report,
        )
        header = trie.artifact.header
        if save_queries:
            write_queries(save_queries, used, force=force)
    head = {
        "device": "cpu",
        "chip": processor(),
        "driver": None,
        "kind": header.tags.get("kind"),
        "commit": commit(),
        "keywords": header.keywords,
        "seed": SEED,
    }
    if plot:
        title = f"{header.keywords:,} keywords, {head['kind'] or 'no kind'}, {head['chip']}"
        write_plot(plot, title, rows, force=force)
    shown = [row.as_json() for row in rows]
    flat = [[v for v in row.values() if not isinstance(v, list)] for row in shown]
    names = [name for name, value in shown[0].items() if not isinstance(value, list)]
    text = f"{facts(head.items())}\n\n{table(names, flat)}"
    output.result(head | {"rows": shown}, text)
    if any(row.equal is False for row in rows):
        raise typer.Exit(1)
