"""The part of docs/benchmarks.md about the search on the GPU."""

from __future__ import annotations

import re
from typing import Any

Rows = list[list[Any]]
Result = dict[str, Any]

EQUAL = (
    "Results equal the CPU engine's bit for bit; a row where they did not would be marked UNEQUAL."
)


def gpu_search(result: Result) -> str:
    """The part, of the file that benchmarks/kernels/figures.py writes."""
    load = result["load"]
    read = load["bytes"] - load["derived_bytes"]
    parts = [
        f"## Search on the GPU\n\n{result['chip']}, driver {result['driver']}, "
        f"{result['processor']} with {result['cores']} cores, commit "
        f"{(result['commit'] or 'unknown')[:9]}."
        f"{' ' + result['provenance'] if 'provenance' in result else ''} "
        "`python -m benchmarks.kernels.figures`: "
        f"{result['keywords']:,} keywords of kind {result['kind']}, {result['top_k']:,} proposals, "
        f"{result['steps']} steps, {result['different']} different queries with full beams in "
        f"turn, launches one behind the other, timed by events. {EQUAL} Loading took "
        f"{load['seconds']} s, with checksums and what is derived: "
        f"{read / load['seconds'] / 1e9:.1f} GB/s of the file. On the device are "
        f"{load['bytes']:,} bytes, of which {load['derived_bytes']:,} are derived.\n"
    ]
    for name, part in (
        ("widths", lambda result: widths(result["widths"])),
        ("paper", _ratios),
        ("variants", _variants),
        ("precision", lambda result: precision(result["precision"])),
        ("profile", _profile),
        ("sanitize", _sanitize),
    ):
        made = result.get(name)
        if made is not None:
            failed = isinstance(made, dict) and "failed" in made
            parts.append(f"{name}: {made['failed']}\n" if failed else part(result))
    parts.append("![speed and precision by beam width](../benchmarks/results/search-h200.png)\n")
    return "\n".join(parts)


def widths(measured: Result) -> str:
    """Rows of the search suite, what each reads, and how fast that is."""
    rows = [
        [
            row["bw"],
            row["batch"],
            *(f"{row[name]:.4f}" for name in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")),
            f"{row['queries_per_second']:,.0f}",
            f"{row['speedup']:.0f}x" if row["equal"] else "UNEQUAL",
            f"{row['bytes_touched'] / row['batch'] / 1e6:.2f}",
            f"{row['random_access_share']:.0%}",
        ]
        for row in measured["rows"]
    ]
    head = [
        "beam width",
        "batch",
        "mean ms",
        "p50",
        "p95",
        "p99",
        "queries/s",
        "times faster than our CPU engine (all cores)",
    ]
    head += ["MB read a query", "share of random-read bandwidth used"]
    rate = measured["random_sectors_per_second"] / 1e9
    return (
        f"{table(head, rows)}\n"
        "MB read counts the distinct 32-byte sectors of the trie and the log-probabilities that a "
        "batch loads. It leaves out what the search itself writes and reads again. The last column "
        f"is the number of these sectors a second, as a share of the {rate:.1f} billion a second "
        "that independent loads at random places of the same trie reach.\n"
    )


def _ratios(result: Result) -> str:
    """The paper's method and our CPU engine, beside the GPU at the same batch size."""
    if not isinstance(result.get("widths"), dict) or "rows" not in result["widths"]:
        return ""
    gpu = {row["batch"]: row["mean_ms"] for row in result["widths"]["rows"] if row["bw"] == 1000}
    own = result.get("cpu")
    given = [("the paper's method", row) for row in result["paper"]]
    given += [("our CPU engine", row) for row in own] if isinstance(own, list) else []
    rows = [
        [
            name,
            row["cores"],
            row["batch"],
            f"{row['mean_ms']:.2f}",
            f"{gpu[row['batch']]:.4f}",
            f"{row['mean_ms'] / gpu[row['batch']]:,.0f}x",
            {1: "24x", 8: "71x"}.get(row["batch"], "") if row["cores"] != 1 else "",
        ]
        for name, row in given
        if row["batch"] in gpu
    ]
    head = ["on the CPU", "cores", "batch", "mean ms", "GPU mean ms", "ratio", "the paper's"]
    return (
        f"{table(head, rows)}\n"
        "The paper's method searches for every proposal among the children of every beam. With "
        "many cores, one query is shared out by its beams at each step, and a batch by its "
        "queries. The paper's ratios compare an A100 with a multi-threaded CPU trie.\n"
    )


def _variants(result: Result) -> str:
    rows: Rows = []
    for variant in result["variants"]:
        if "failed" in variant:
            rows.append([variant["name"], variant["idea"], variant["failed"], "", ""])
            continue
        one, *more = variant["rows"]
        rates = [f"{row['queries_per_second']:,.0f}" for row in more]
        shown = f"{one['mean_ms']:.4f}" if variant["equal"] else "UNEQUAL"
        rows.append([variant["name"], variant["idea"], shown, *rates])
    head = ["variant", "idea", "ms, batch 1", "queries/s, batch 8", "queries/s, batch 64"]
    return (
        "Variants of the kernel at beam width 1000, the paper's shape first. Each up to "
        "`04-waves`, the product, adds one idea to the variant before it. Each of the others "
        f"changes one thing of the product:\n\n{table(head, rows)}"
    )


def precision(made: Result) -> str:
    """Precision@100 by beam width."""
    head = ["beam width", *(row["bw"] for row in made["rows"])]
    rows: Rows = [["precision@100", *(row["precision"] for row in made["rows"])]]
    level = ", ".join(f"{row['precision']:.2f} at width {row['bw']}" for row in made["rows"][:2])
    return (
        f"{table(head, rows)}\n"
        f"Precision@100 of {made['queries']} queries, against the best 100 of all keywords, each "
        f"scored for each query. Our queries are easier than the paper's: {level}, where the paper "
        "has 0.53 at width 100 and 0.78 at 1000. This curve does not confirm the paper's.\n"
    )


def _profile(result: Result) -> str:
    good = [row for row in result["profile"] if "failed" not in row]
    if not good:
        return ""
    names = [name for name in good[0] if name != "batch"]
    rows: Rows = [[row["batch"], *(row.get(name, "") for name in names)] for row in good]
    shown = table(["batch", *names], rows)
    return f"What the profiler counts in one launch, caches flushed before it:\n\n{shown}"


def _sanitize(result: Result) -> str:
    return (
        "compute-sanitizer on `benchmarks/kernels/small.py`, whose results were the CPU's: "
        f"{sanitizers(result['sanitize'])}.\n"
    )


def sanitizers(tools: Result) -> str:
    """What each tool counted: memcheck: 0 errors; racecheck: 0 hazards."""
    return "; ".join(f"{tool}: {counted(found['says'])}" for tool, found in tools.items())


def counted(says: str | list[str]) -> str:
    """The count in the last line of a tool of compute-sanitizer; else all that it says."""
    text = says if isinstance(says, str) else "; ".join(says)
    found = re.search(r"SUMMARY: (\d+ (?:errors?|hazards?))", text)
    return found[1] if found else text


def table(head: list[Any], rows: Rows) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
