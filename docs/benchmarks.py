"""Write docs/benchmarks.md from the files in benchmarks/results: python docs/benchmarks.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from full_scale_figures import full_scale
from search_figures import gpu_search, sanitizers, table

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = PAGE.parents[1] / "benchmarks" / "results"

Rows = list[list[Any]]


def page() -> str:
    """The page, a part for each file of results."""
    parts = [
        "# Benchmarks\n",
        "`docs/benchmarks.py` writes this page from `benchmarks/results/*.json`, which have chip, "
        "versions, seed and commit. The key sets `query`, `wide` and `narrow` are those of "
        "`benchmarks/key_sets.py`.\n",
    ]
    for name, part in (("sizes", _sizes), ("marisa", _marisa), ("build", _build)):
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(part(json.loads(path.read_text())))
    searches = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("paper_method_*"))]
    if searches:
        parts.append(_search(searches))
    if (path := RESULTS / "full_scale.json").exists():
        parts.append(full_scale(json.loads(path.read_text())))
    for path in sorted(RESULTS.glob("search-*.json")):
        parts.append(gpu_search(json.loads(path.read_text())))
    for name, part in (
        ("graph", _graph), ("sampling", _sampling), ("ablation", _ablation), ("decode", _decode),
    ):  # fmt: skip
        path = RESULTS / f"{name}-h200.json"
        if path.exists():
            parts.append(part(json.loads(path.read_text())))
    return "\n".join(parts)


def _note(result: dict[str, Any]) -> str:
    """What is said of where a file comes from."""
    return f"{result['provenance']} " if "provenance" in result else ""


def _sampling(result: dict[str, Any]) -> str:
    """Microseconds of a call within a graph, by shape; PyTorch beside."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in result["rows"]:
        key = (row["batch"], row["vocab"], row["logits"], row["mode"])
        found.setdefault(key, {})[row["result"]] = row
    rows: Rows = []
    for (batch, vocab, logits, mode), by_result in found.items():
        ours = next(by_result[r] for r in ("mask", "candidates", "token") if r in by_result)
        peaks = [by_result[r]["peak_bytes"] for r in by_result if not r.startswith("PyTorch")]
        cells = [
            f"{by_result[r]['microseconds']:.1f}" if r in by_result else ""
            for r in ("mask", "token", "candidates", "PyTorch sort", "PyTorch topk")
        ]
        must = ours.get("must_reach")
        rows.append(
            [
                f"{batch} x {vocab:,}",
                logits,
                mode,
                *cells,
                must or "",
                f"{ours['terabytes_per_second']:.2f}",
                f"{max(peaks) / 1e6:.2f}",
                f"{by_result['PyTorch sort']['peak_bytes'] / 1e6:.0f}"
                if "PyTorch sort" in by_result
                else "",
            ]
        )
    head = ["shape", "logits", "keeps", "mask", "token", "candidates", "sort", "topk", "must"]
    head += ["TB/s", "MB", "MB of sort"]
    return (
        f"## Top-k and top-p\n\n{_note(result)}{result['chip']}, driver {result['driver']}, seed "
        f"{result['seed']}, commit `{result['commit']}`. Microseconds of a call within a captured "
        "graph, inputs in rotation; `sort` and `topk` are PyTorch's, `must` is the target. k is "
        "50, or 1,000 where that is said, and p is 0.9. TB/s counts the bytes of the logits, and "
        f"for the mask those written; a copy in the same run reached "
        f"{result['copy_terabytes_per_second']:.2f}. MB is memory beyond input and output.\n\n"
        f"{table(head, rows)}\n{_sanitized(result)}"
    )


def _sanitized(result: dict[str, Any]) -> str:
    """What compute-sanitizer says of every kernel of sampling."""
    if "sanitize" not in result:
        return ""
    return (
        "compute-sanitizer with `python -m benchmarks.sampling.small`: "
        f"{sanitizers(result['sanitize'])}.\n"
    )


def _ablation(result: dict[str, Any]) -> str:
    """What parts of the pivot search are worth."""
    rows: Rows = [
        [
            row["rows"],
            row["mode"],
            row["method"],
            row.get("truncation", ""),
            row.get("pivots", ""),
            {True: "yes", False: "no"}.get(row.get("duplicates"), ""),
            "tiers" if row["tiers"] else "one size",
            f"{row['microseconds']:.0f}",
            "wrong" if row.get("wrong") else "",
        ]
        for row in result["rows"]
    ]
    head = ["rows", "keeps", "method", "truncation", "pivots", "duplicates", "blocks", "us", "set"]
    return (
        "### The pivot search taken apart\n\n"
        f"{result['chip']}, driver {result['driver']}, commit `{result['commit']}`; "
        f"{result['batch']} rows of {result['vocab']:,}. A Gaussian threshold hits (power-law "
        "rows), misses (one 1e9 in each), and with many ties. `histogram` is the method of the "
        "product.\n\n"
        f"{table(head, rows)}"
    )


def _decode(result: dict[str, Any]) -> str:
    """From logits to keywords."""
    names = [name for name, value in result["rows"][0].items() if isinstance(value, int | float)]
    rows: Rows = [
        [f"{row[name]:,.2f}" if isinstance(row[name], float) else row[name] for name in names]
        for row in result["rows"]
    ]
    return (
        f"### From logits to keywords\n\n{_note(result)}{result['chip']}, driver "
        f"{result['driver']}, commit `{result['commit']}`; `trie bench --suite decode`, "
        f"{result['keywords']:,} keywords. log-softmax and the best {result['rows'][0]['top_k']:,} "
        "of all columns, and the search.\n\n"
        f"{table([name.replace('_', ' ') for name in names], rows)}"
    )


def _sizes(result: dict[str, Any]) -> str:
    rows = [
        [
            kind,
            f"{of['low_bits_auto']['keywords']:,}",
            f"{of['low_bits_auto']['bits_per_keyword']:.1f}",
            f"{of['low_bits_16']['bits_per_keyword']:.1f}",
            of["low_bits_auto"]["wall_seconds"],
        ]
        for kind, of in result["sets"].items()
    ]
    head = ["set", "keywords", "bits per keyword", "with 16-bit low parts", "build, s"]
    return (
        f"## Sizes\n\n{_machine(result)} `python -m benchmarks.sizes`, without alphabet and values."
        f"\n\n{table(head, rows)}"
    )


def _marisa(result: dict[str, Any]) -> str:
    sets = result["sets"]
    sizes: Rows = []
    speeds: Rows = []
    for kind, of in sets.items():
        marisa = of["marisa"]
        pairs = [
            f"{marisa[f'{keys}_3']['bits_per_keyword']} / {marisa[f'{keys}_1']['bits_per_keyword']}"
            for keys in ("codes", "three_bytes")
        ]
        ours = [of["bits_per_keyword"], of["bits_per_keyword_low_bits_16"]]
        sizes.append([kind, f"{of['keywords']:,}", *ours, *pairs])
        race = marisa["codes_3"]
        speeds.append(
            [
                kind,
                of["build_seconds"],
                race["build_seconds"],
                f"{of['build_speedup']}x",
                f"{of['lookups_per_second']:,}",
                f"{race['lookups_per_second']:,}",
                f"{of['lookup_speedup']}x",
            ]
        )
    size_head = ["set", "keywords", "ours", "16-bit low parts", "MARISA codes", "MARISA 3 bytes"]
    speed_head = ["set", "build, s", "MARISA, s", "faster", "lookups/s", "MARISA's", "faster"]
    return (
        f"## Against marisa-trie\n\n{_machine(result)} `python -m benchmarks.marisa`."
        "\n\nBits per keyword without alphabet and values; MARISA with 3 tries / 1 trie, on "
        "prefix-free codes of frequency ranks (which need the same alphabet) and on 3 bytes a "
        "token:\n\n"
        f"{table(size_head, sizes)}\n"
        "Seconds are those of `trie build` from process start on Parquet in the page cache, with "
        "checksums and fsync, against `BinaryTrie(keys)` on codes with 3 tries, its keys made "
        "before. Lookups are one batch on one thread against a loop over the trie:\n\n"
        f"{table(speed_head, speeds)}"
    )


def _build(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{row['keywords']:,}",
            row["memory"],
            row["wall_seconds"],
            f"{row['wall_seconds'] / row['keywords'] * 1e6:.2f}",
            f"{row['peak_rss_bytes'] / 2**20:,.0f}",
            " / ".join(f"{seconds:.1f}" for seconds in row["phases"].values()),
        ]
        for row in result["rows"]
    ]
    phases = " / ".join(result["rows"][0]["phases"])
    head = ["keywords", "--memory", "seconds", "microseconds a keyword", "peak MiB", phases]
    ok = all(check["ok"] for check in result["verified"]["checks"])
    peers = "; ".join(
        f"{p['keywords']:,}: {p['build_seconds']} s, peak {p['peak_rss_bytes'] / 2**20:,.0f} MiB, "
        f"of which {p['keys_rss_bytes'] / 2**20:,.0f} before it began"
        for p in result["marisa"]
    )
    return (
        f"## How a build grows\n\n{_machine(result)} Kind wide, `python -m benchmarks.build`.\n\n"
        f"{table(head, rows)}\n"
        f"The largest was verified against its source: {'all checks hold' if ok else 'WRONG'}, "
        f"{result['verified']['wall_seconds']} s. marisa-trie on the same keywords: {peers}.\n\n"
        "![cost by size](../benchmarks/results/build.png)\n"
    )


def _search(results: list[dict[str, Any]]) -> str:
    rows = [[value for value in _flat(result).values()] for result in results]
    head = list(_flat(results[0]))
    return (
        f"## CPU search against the paper's method\n\n{_machine(results[0])} "
        "`python -m benchmarks.paper_method ARTIFACT`: beam width and proposals 1,000, 8 steps, "
        "full beams, processor time on one core. The paper's method searches every proposal among "
        "the children of every beam; results are equal bit for bit.\n\n"
        f"{table(head, rows)}\n" + "\n".join(_profile(result) for result in results)
    )


def _graph(result: dict[str, Any]) -> str:
    """The persistent kernel against a graph of plain ones."""
    persistent = result["persistent"]
    rows: Rows = [
        ["persistent", "", f"{persistent['shared_bytes']:,}", persistent["us_per_phase"], ""]
    ]
    rows += [
        [
            f"graph, state: {row['state']}",
            f"{row['state_bytes']:,}",
            f"{row['shared_bytes']:,}",
            row["us_per_phase"],
            f"{row['difference_us_per_query']:+.1f}",
        ]
        for row in result["graph"]
    ]
    head = ["form", "state, bytes", "shared bytes", "us a phase", "us a query"]
    return (
        f"## One persistent kernel or a graph of kernels\n\n{result['chip']}, driver "
        f"{result['driver']}, commit {(result['commit'] or 'unknown')[:9]}. `python -m "
        "benchmarks.kernels.graph`: a phase that does next to nothing, with a barrier of "
        f"{result['blocks']} blocks of {result['threads']:,} threads behind it, or as a kernel of "
        "its own in a CUDA graph, which also brings what a block holds from phase to phase from "
        f"device memory and back. A query of {result['steps']} steps has {result['boundaries']} "
        "barriers; the last column is what as many boundaries of kernels add to it. With the least "
        "state it is a lower bound for the search: what that does today while it waits at a "
        "barrier is not in it.\n\n"
        f"{table(head, rows)}"
    )


def _profile(result: dict[str, Any]) -> str:
    """Where our search spends its time."""
    rows = [[*row.values()] for row in result["profile"]]
    head = ["step", "ms", "beams kept", "candidates"]
    return f"Our search of `{result['kind']}` by step:\n\n{table(head, rows)}"


def _flat(result: dict[str, Any]) -> dict[str, Any]:
    skip = {"chip", "cores", "driver", "python", "commit", "seed"}
    return {k: v for k, v in result.items() if k not in skip and not isinstance(v, (list, dict))}


def _machine(result: dict[str, Any]) -> str:
    commit = (result["commit"] or "unknown")[:9]
    return f"{result['chip']}, {result['cores']} cores, commit {commit}."


if __name__ == "__main__":
    PAGE.write_text(page())
