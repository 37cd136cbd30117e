"""`trie bench`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from flashtrie.cli.bench_decode import bench_decode
from flashtrie.cli.bench_sampling import bench_sampling
from flashtrie.cli.bench_search import bench_search
from flashtrie.cli.command import check_options
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
from flashtrie.cli.output import Output

Suite = Annotated[
    Literal["search", "sampling", "decode"],
    option("Searches; top-k and top-p of logits; or from logits to keywords."),
]
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


_SEARCHES = ("bw", "batch", "top_k", "steps")
_SEARCH_SUITE = ("queries", "against", "save_queries", "plot", "force")


def bench(
    context: typer.Context,
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
    """Measure searches with queries made from the artifact itself; or sampling; or decoding.

    A row for each beam width and batch. Only queries that keep the beam full are timed; on the GPU
    by events, without the way there and back. FILE is npz or safetensors, as `trie search
    --queries` reads it.
    """
    output = Output(json, quiet)
    if suite != "search":
        check_options(context, f"does not go with --suite {suite}", *_SEARCH_SUITE)
    if suite == "sampling":
        check_options(context, "does not go with --suite sampling", "artifact", *_SEARCHES)
        bench_sampling(output, choose_device(device, output))
        return
    path = find_artifact(artifact)
    chosen = choose_device(device, output)
    sizes: dict[str, Any] = {
        "beam_widths": bw or [1000],
        "batches": batch or [1],
        "top_k": top_k,
        "steps": steps,
    }
    if suite == "decode":
        bench_decode(output, path, chosen, **sizes)
        return
    equal = bench_search(
        output,
        path,
        chosen,
        **sizes,
        queries=queries,
        against=against is not None,
        save_queries=save_queries,
        plot=plot,
        force=force,
    )
    if not equal:
        raise typer.Exit(1)
