"""The part of docs/benchmarks.md about the search on the GPU."""

from __future__ import annotations

from typing import Any

Rows = list[list[Any]]
Result = dict[str, Any]


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
        "turn, launches one behind the other, timed by events. Results of each row are the CPU "
        f"engine's bit for bit, or it says so. Loading took {load['seconds']} s, with checksums "
        f"and what is derived: {read / load['seconds'] / 1e9:.1f} GB/s of the file. On the device "
        f"are {load['bytes']:,} bytes, of which {load['derived_bytes']:,} are derived.\n"
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
        "over our CPU engine",
    ]
    head += ["MB read a query", "of random reads"]
    rate = measured["random_sectors_per_second"] / 1e9
    return (
        f"{table(head, rows)}\n"
        "MB read: the distinct 32-byte sectors of trie and log-probabilities that a batch loads; "
        "what the search writes itself, and reads again, is not among them. The last column is "
        f"how many of these a second, of the {rate:.1f} billion that independent loads at random "
        "places of the same trie bring.\n"
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
        "The paper's method searches every proposal among the children of every beam; on many "
        "cores the beams of a single query are shared out at each step, and of a batch the "
        "queries. The paper's ratios are of an A100 over a multi-threaded CPU trie.\n"
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
        "Variants of the kernel at beam width 1000, the paper's shape first. Up to `04-waves`, "
        "which is the product, each adds to the one before; each of the others changes the "
        f"product in one thing:\n\n{table(head, rows)}"
    )


def precision(made: Result) -> str:
    """Precision@100 by beam width."""
    head = ["beam width", *(row["bw"] for row in made["rows"])]
    rows: Rows = [["precision@100", *(row["precision"] for row in made["rows"])]]
    return (
        f"{table(head, rows)}\n"
        f"Precision@100 of {made['queries']} queries, against the best 100 of all keywords, each "
        "scored for each query. The level of the curve depends on the queries; only its shape "
        "compares with the paper's, 0.53 at beam width 100 to 0.78 at 1000.\n"
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
    said = [
        f"{tool}: {'; '.join(found['says']) if isinstance(found['says'], list) else found['says']}"
        for tool, found in result["sanitize"].items()
    ]
    return f"compute-sanitizer on `benchmarks/kernels/small.py`: {'. '.join(said)}.\n"


def table(head: list[Any], rows: Rows) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
