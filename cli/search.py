"""`trie search`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from flashtrie.cli.options import (
    Artifact,
    Device,
    Force,
    Json,
    Parquet,
    Quiet,
    choose_device,
    find_artifact,
    option,
)
from flashtrie.cli.output import Output, facts, table
from flashtrie.cli.progress import progress

if TYPE_CHECKING:
    from flashtrie.formats.search import SearchResult


def search(
    queries: Annotated[str, option("Proposals or logits, in npz or safetensors.", "FILE")],
    artifact: Artifact = None,
    bw: Annotated[int, option("Beam width: prefixes kept per step.", "B")] = 1000,
    top_k: Annotated[
        int | None, option("Proposals kept per step. [default: all, and 1000 of logits]", "K")
    ] = None,
    length_penalty: Annotated[
        float, option("Scores of t tokens are divided by t to this power.", "A")
    ] = 0.0,
    device: Device = "auto",
    output: Parquet = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for the best keywords of given proposals, step by step.

    FILE has tokens and logprobs [Q, T, K], or logits [Q, T, V], and with either end_logprobs
    [Q, T + 1] or not. The proposals of a step are the same for every beam: they do not depend on
    the prefix. Without -o only the best result of each query is printed.

    Key ids change with every build. Never store them across builds: build with --values, and store
    the value.
    """
    out = Output(json, quiet)
    path = find_artifact(artifact)
    device = choose_device(device, out)
    import flashtrie
    from flashtrie.cpu.query_files import ResultsOutput, read_queries, search_queries

    rows: list[dict[str, Any]] = []
    results = 0
    with flashtrie.open(path) as trie, ExitStack() as stack:
        valued = bool(trie.artifact.header.values)
        reads: list[Any] = [trie.artifact.descriptor, queries]
        file = output and stack.enter_context(
            ResultsOutput(output, values=valued, force=force, reads=reads)
        )
        given = read_queries(queries)
        out.note_if_compiling()
        report = stack.enter_context(progress(out))
        engine = trie.to_device(report) if device == "cuda" else trie
        started = time.monotonic()
        for first, found in search_queries(
            engine,
            given,
            beam_width=bw,
            top_k=top_k,
            length_penalty=length_penalty,
            progress=report,
        ):
            results += len(found.key_ids)
            if file:
                file.add(first, found)
            else:
                rows += _best(first, found)
        seconds = time.monotonic() - started
    totals = {"device": device, "queries": len(given), "results": results, "seconds": seconds}
    if output:
        out.result(totals | {"output": output}, facts((totals | {"output": output}).items()))
        return
    cells = [list(map(_cell, row.values())) for row in rows]
    text = table(list(rows[0]), cells) if rows else "no queries"
    out.result(totals | {"rows": rows}, text)


def _cell(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _best(first: int, found: SearchResult) -> list[dict[str, Any]]:
    rows = []
    for query, (start, stop) in enumerate(zip(found.offsets[:-1], found.offsets[1:], strict=True)):
        row: dict[str, Any] = {"query": first + query, "results": int(stop - start)}
        row |= dict.fromkeys(("key_id", "score", "tokens", "value"))
        if stop > start:
            tokens = found.tokens[found.token_offsets[start] : found.token_offsets[start + 1]]
            row["key_id"] = int(found.key_ids[start])
            row["score"] = float(found.scores[start])
            row["tokens"] = tokens.tolist()
            row["value"] = None if found.values is None else int(found.values[start])
        rows.append(row)
    return rows
