"""Write docs/results.md, what two papers claim beside what was measured: python docs/results.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from search_figures import table

PAGE = Path(__file__).with_name("results.md")
RESULTS = PAGE.parents[1] / "benchmarks" / "results"

Result = dict[str, Any]

_A100 = "A100 80 GB, 800 million keywords, 2.2 million tokens"
_MARISA = "against an optimised MARISA trie"
_CPU_TRIE = "against an optimised multi-threaded CPU trie"
_WIDTH = 1000  # of the beam, where the paper names one figure
_GIGABYTE = 1e9


class Row(NamedTuple):
    """A claim, the paper's figure and its conditions, ours and ours, and the file of ours."""

    claim: str
    theirs: str
    under: str
    ours: str
    measured: str
    file: str


def page() -> str:
    """The page. A row is there when the file of its figure is."""
    parts = [
        "# What the papers claim, and what was measured\n",
        "`docs/results.py` writes this page from `benchmarks/results/*.json`; a claim that has no "
        "file yet has no row. [benchmarks.md](benchmarks.md) says how they were "
        "measured. Chips differ, and so do keywords, queries and logits, which the papers do not "
        "give: figures compare in size, not in their last digits.\n",
    ]
    for title, makers in (
        ("FlashTrie", (_full_scale, _search, _build, _marisa, _prefix)),
        ("Qrita (arXiv 2602.01518)", (_sampling,)),
    ):
        made = [(file, make) for make in makers for file in _files(make)]
        rows = [row for file, make in made for row in make(_read(file), file)]
        if rows:
            head = ["claim", "the paper", "its conditions", "here", "conditions", "file"]
            parts.append(f"## {title}\n\n{table(head, _by_claim(rows))}")
            notes = {file: _read(file).get("provenance") for file, _ in made}
            parts += [f"{file}: {note}\n" for file, note in notes.items() if note]
            parts += [
                f"![{file}](../benchmarks/results/{Path(file).stem}.png)\n"
                for file in notes
                if (RESULTS / file).with_suffix(".png").exists()
            ]
    return "\n".join(parts)


def _files(make: Any) -> list[str]:
    names = {
        _full_scale: "full_scale.json",
        _search: "search-*.json",
        _build: "build.json",
        _marisa: "marisa.json",
        _prefix: "marisa_prefix.json",
        _sampling: "sampling-*.json",
    }
    return sorted(path.name for path in RESULTS.glob(names[make]))


def _read(file: str) -> Result:
    found: Result = json.loads((RESULTS / file).read_text())
    return found


def _by_claim(rows: list[Row]) -> list[list[Any]]:
    """Rows of one claim one behind the other, claims in the order in which they first come."""
    order = list(dict.fromkeys(row.claim for row in rows))
    return [list(row) for row in sorted(rows, key=lambda row: order.index(row.claim))]


def _full_scale(result: Result, file: str) -> list[Row]:
    """The whole chain at the size of the paper."""
    rows: list[Row] = []
    where = _where(result, f"{result['keywords']:,} keywords of kind {result['kind']}")
    built = result.get("build")
    if built:
        bits = f"{built['bits_per_keyword']:.1f} bits a keyword without the alphabet"
        ours = f"{built['bytes'] / _GIGABYTE:.2f} GB ({bits})"
        theirs = "about 3 GB (30 bits a keyword)"
        rows.append(Row("size of the index", theirs, _A100, ours, where, f"`{file}`"))
    searched = result.get("search")
    if searched and searched["device"] == "cuda":
        rows += _speeds(searched["rows"], where, file)
        rows += _ratios(
            (result.get("paper_method") or {}) | {"widths": searched, "cores": result["cores"]},
            where,
            file,
        )
    return rows + _precision(result.get("precision") or {}, where, file)


def _search(result: Result, file: str) -> list[Row]:
    """The search on a GPU, of the file that benchmarks/kernels/figures.py writes."""
    where = _where(result, f"{result['keywords']:,} keywords of kind {result['kind']}")
    rows = _speeds(result["widths"]["rows"], where, file)
    return rows + _ratios(result, where, file) + _precision(result, where, file)


def _speeds(measured: list[Result], where: str, file: str) -> list[Row]:
    at = {row["batch"]: row for row in measured if row["bw"] == _WIDTH}
    one, eight = at[1], at[8]
    equal = all(row["equal"] for row in measured)
    searched = f"{where}; beam width {_WIDTH}"
    under = f"{_A100}; beam width {_WIDTH}"
    latency = f"{one['mean_ms']:.3f} ms, {one['p99_ms']:.3f} ms"
    same = "equal bit for bit" if equal else "NOT EQUAL"
    return [
        Row(
            "a search: mean and p99, batch 1",
            "1.91 ms, under 3 ms",
            under,
            latency,
            searched,
            f"`{file}`",
        ),
        Row(
            "searches a second, batch 8",
            "1,621",
            under,
            f"{eight['queries_per_second']:,.0f}",
            searched,
            f"`{file}`",
        ),
        Row(
            "results, GPU and CPU",
            "within 0.001",
            _A100,
            same,
            f"{where}; every beam width and batch of the file",
            f"`{file}`",
        ),
    ]


def _ratios(result: Result, where: str, file: str) -> list[Row]:
    """The GPU over the paper's method, and over our own engine, both on all cores of the CPU."""
    gpu = {row["batch"]: row for row in result["widths"]["rows"] if row["bw"] == _WIDTH}
    compared = [
        {"cores": "all", "batch": batch, "mean_ms": row["speedup"] * row["mean_ms"]}
        for batch, row in gpu.items()
    ]
    rows: list[Row] = []
    for name, measured in (
        ("the paper's method", result.get("paper")),
        ("our CPU engine", result.get("cpu", compared)),
    ):
        if not isinstance(measured, list):  # not measured, or it failed
            continue
        for batch, theirs in ((1, "24x (46.3 ms)"), (8, "71x")):
            found = [row for row in measured if row["batch"] == batch and row["cores"] != 1]
            if not found:
                continue
            best = min(found, key=lambda row: float(row["mean_ms"]))
            cores = result["cores"] if best["cores"] == "all" else best["cores"]
            ratio = best["mean_ms"] / gpu[batch]["mean_ms"]
            rows.append(
                Row(
                    f"GPU over CPU, batch {batch}",
                    theirs,
                    f"{_A100}; beam width {_WIDTH}; {_CPU_TRIE}",
                    f"{ratio:,.0f}x ({best['mean_ms']:.1f} ms)",
                    f"{where}; beam width {_WIDTH}; {name} on {cores} cores",
                    f"`{file}`",
                )
            )
    return rows


def _precision(result: Result, where: str, file: str) -> list[Row]:
    """Precision@100; only the shape compares."""
    made = result.get("precision")
    if made is None or "failed" in made:
        return []
    first, *_, last = made["rows"]
    return [
        Row(
            f"precision@100, beam width {first['bw']} to {last['bw']}",
            "0.53 to 0.78",
            _A100,
            f"{first['precision']:.2f} to {last['precision']:.2f}",
            f"{where}; {made['queries']} queries made from the artifact, against the best 100 of "
            "all keywords. They are easier than the paper's: this does not confirm its curve.",
            f"`{file}`",
        )
    ]


def _build(result: Result, file: str) -> list[Row]:
    """Against marisa-trie on the same keywords, the largest set."""
    peer = result["marisa"][-1]
    same = [row for row in result["rows"] if row["keywords"] == peer["keywords"]]
    ours = min(same, key=lambda row: float(row["wall_seconds"]))
    where = _where(result, f"{peer['keywords']:,} keywords of kind {result['kind']}")
    peers = f"{where}; marisa-trie of 3 tries on frequency codes"
    took = f"{ours['wall_seconds']:.0f} s with --memory {ours['memory']}, the fastest, against "
    took += f"{peer['build_seconds']:.0f} s"
    speed = peer["build_seconds"] / ours["wall_seconds"]
    return [
        _faster(speed, took, peers, file),
        _smaller(ours["bits_per_keyword"], peer["bits_per_keyword"], peers, file),
    ]


def _marisa(result: Result, file: str) -> list[Row]:
    """The same of the reference key sets."""
    rows: list[Row] = []
    for kind, of in result["sets"].items():
        where = _where(result, f"{of['keywords']:,} keywords of set {kind}")
        race = of["marisa"]["codes_3"]
        took = f"{of['build_seconds']} s against {race['build_seconds']} s"
        coded = f"{where}; marisa-trie of 3 tries on frequency codes"
        rows.append(_faster(of["build_speedup"], took, coded, file))
        best = min(peer["bits_per_keyword"] for peer in of["marisa"].values())
        smallest = f"{where}; the smallest of marisa-trie's"
        rows.append(_smaller(of["bits_per_keyword"], best, smallest, file))
    return rows


def _prefix(result: Result, file: str) -> list[Row]:
    """Size on the largest prefix of the full set that marisa-trie could hold."""
    peer = result["marisa"]
    room = f"{peer['memory_limit_bytes'] / 2**30:.0f} GiB"
    failed = ", ".join(f"{of['keywords']:,}" for of in result["failed"])
    where = _where(
        result,
        f"the first {result['keywords']:,} of {result['set_keywords']:,} keywords of kind "
        f"{result['kind']}, which marisa-trie builds in {room} of memory"
        + (f" (not {failed})" if failed else ""),
    )
    peers = f"{where}; marisa-trie of {peer['tries']} tries on frequency codes"
    bits = result["ours"]["bits_per_keyword"], peer["bits_per_keyword"]
    return [_smaller(*bits, peers, file)]


def _faster(speed: float, took: str, where: str, file: str) -> Row:
    return Row("build", "3.4x faster", _MARISA, f"{speed:.2f}x ({took})", where, f"`{file}`")


def _smaller(ours: float, theirs: float, where: str, file: str) -> Row:
    share = 1 - ours / theirs
    shown = f"{abs(share):.1%} {'smaller' if share > 0 else 'larger'}"
    shown = "as large" if shown.startswith("0.0%") else shown
    both = f"{shown} ({ours:.1f} against {theirs:.1f} bits a keyword, both without the alphabet)"
    return Row("size against MARISA", "22% smaller", _MARISA, both, where, f"`{file}`")


def _sampling(result: Result, file: str) -> list[Row]:
    """Selection without a sort, against PyTorch's, of 64 rows of 131,072."""
    shape = "64 rows of 131,072, power-law logits, k = 50, p = 0.9"
    rows: list[Row] = []
    for mode in ("k", "p", "k+p"):
        of = {
            row["result"]: row
            for row in result["rows"]
            if (row["batch"], row["vocab"], row["logits"]) == (64, 131072, "power")
            and row["mode"] == mode
        }
        if "mask" not in of or "PyTorch sort" not in of:
            continue
        mask, sort = of["mask"], of["PyTorch sort"]
        speed = sort["microseconds"] / mask["microseconds"]
        for claim, theirs, ours in (
            (
                f"time of {mode}, masked logits, against a sort",
                "— (its figure, up to twice the throughput, is against other engines' kernels, "
                "and does not compare with a sort)",
                f"{speed:.1f}x ({mask['microseconds']:.1f} us against "
                f"{sort['microseconds']:.0f} us)",
            ),
            (
                f"memory of {mode} beyond the logits",
                "half of the sort's",
                f"{mask['peak_bytes'] / sort['peak_bytes']:.1%} of the sort's",
            ),
        ):
            where = _where(result, f"{shape}, PyTorch's sort")
            under = "language models' vocabularies, in Triton"
            rows.append(Row(claim, theirs, under, ours, where, f"`{file}`"))
    return rows


def _where(result: Result, what: str) -> str:
    """The machine and the key set, in a cell."""
    chip = result["chip"]
    processor = f", {result['cores']} cores" if result.get("driver") is None else ""
    driver = f", driver {result['driver']}" if result.get("driver") else ""
    seed = f", seed {result['seed']}" if "seed" in result else ""
    return f"{chip}{processor}{driver}; {what}{seed}; commit {(result['commit'] or 'unknown')[:9]}"


if __name__ == "__main__":
    PAGE.write_text(page())
