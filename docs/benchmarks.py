"""Write docs/benchmarks.md from the files in benchmarks/results: python docs/benchmarks.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from search_figures import gpu_search, table

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
    for path in sorted(RESULTS.glob("search-*.json")):
        parts.append(gpu_search(json.loads(path.read_text())))
    return "\n".join(parts)


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
