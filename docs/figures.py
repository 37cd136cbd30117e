"""Put measured figures into pages that are written by hand: python docs/figures.py.

Each stands between `<!-- NAME, written by docs/figures.py -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from search_figures import table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Result = dict[str, Any]

_WIDTH = 1000  # of the beam, where one figure is named
_GIGABYTE = 1e9
_SHAPES = ((1, 131072), (64, 131072), (16, 2200000))
_MODES = ("k", "p", "k+p")


def pages() -> dict[Path, str]:
    """Each page with its figures anew."""
    return {ROOT / name: _filled(ROOT / name, makers) for name, makers in _FIGURES.items()}


def _filled(page: Path, makers: dict[str, Callable[[], str]]) -> str:
    text = page.read_text()
    for name, make in makers.items():
        begin = f"<!-- {name}, written by docs/figures.py -->\n"
        pattern = re.compile(f"({re.escape(begin)}).*?(<!-- end -->\n)", re.DOTALL)
        figures = make()
        text, count = pattern.subn(lambda found: found[1] + figures + found[2], text)
        assert count == 1, f"{page} has {count} places for {name}"
    return text


def _read(file: str) -> Result:
    found: Result = json.loads((RESULTS / file).read_text())
    return found


def _headline() -> str:
    """Three figures of the full scale, or while it has no file, of the search and the build."""
    if (RESULTS / "full_scale.json").exists():
        result = build = _read("full_scale.json")
        searched, built = result["search"]["rows"], result["build"]
    else:
        result, build = _read("search-h200.json"), _read("build.json")
        searched = result["widths"]["rows"]
        same = [row for row in build["rows"] if row["keywords"] == result["keywords"]]
        built = min(same, key=lambda row: float(row["peak_rss_bytes"]))
    at = {row["batch"]: row for row in searched if row["bw"] == _WIDTH}
    one, eight = at[1], at[8]
    rows = [
        [
            f"beam search on one {result['chip']}: beam width {_WIDTH}, {one['steps']} steps of "
            f"{one['top_k']:,} proposals, full beams",
            f"**{one['mean_ms']:.2f} ms** a query; {eight['queries_per_second']:,.0f} queries/s "
            "at batch 8",
        ],
        [
            f"build, {build['cores']} cores",
            f"**{built['wall_seconds']:.0f} s**, at most "
            f"{built['peak_rss_bytes'] / _GIGABYTE:.1f} GB of memory",
        ],
        [
            "artifact",
            f"**{built['bytes'] / _GIGABYTE:.2f} GB**, {built['bits_per_keyword']:.1f} bits a "
            "keyword without the alphabet",
        ],
    ]
    return table([f"{result['keywords']:,} synthetic keywords, kind {result['kind']}", ""], rows)


class _Peer:
    """A key set, FlashTrie's figures of it, and marisa-trie's."""

    def __init__(self, kind: str, keywords: int, ours: Result, theirs: Result) -> None:
        self.kind, self.keywords, self.ours, self.theirs = kind, keywords, ours, theirs
        self.size = ours["bits"] / theirs["bits"] - 1
        self.speed = theirs["seconds"] / ours["seconds"]


def _peers() -> list[_Peer]:
    """Of the reference key sets, and of how a build grows; the latter have no lookups."""
    found = []
    for kind, of in _read("marisa.json")["sets"].items():
        best = min(peer["bits_per_keyword"] for peer in of["marisa"].values())
        race = of["marisa"]["codes_3"]
        ours = {
            "bits": of["bits_per_keyword"],
            "seconds": of["build_seconds"],
            "lookups": of["lookups_per_second"],
        }
        theirs = {
            "bits": best,
            "seconds": race["build_seconds"],
            "lookups": race["lookups_per_second"],
        }
        found.append(_Peer(kind, of["keywords"], ours, theirs))
    grown = _read("build.json")
    for peer in grown["marisa"]:
        same = [row for row in grown["rows"] if row["keywords"] == peer["keywords"]]
        best = min(same, key=lambda row: float(row["wall_seconds"]))
        ours = {"bits": best["bits_per_keyword"], "seconds": best["wall_seconds"]}
        theirs = {"bits": peer["bits_per_keyword"], "seconds": peer["build_seconds"]}
        found.append(_Peer(grown["kind"], peer["keywords"], ours, theirs))
    return found


def _marisa() -> str:
    """The comparison in a few sentences."""
    peers = _peers()
    by_lookups = [peer for peer in peers if "lookups" in peer.ours]
    largest = max(peers, key=lambda peer: peer.keywords)
    sizes = [
        f"{_size_in_words(peer)} on {_millions(peer.keywords)} of `{peer.kind}`"
        for peer in (*by_lookups, largest)
    ]
    speeds = sorted(peer.speed for peer in (*by_lookups, largest))
    lookups = sorted(peer.ours["lookups"] / peer.theirs["lookups"] for peer in by_lookups)
    text = (
        "marisa-trie was given the same keywords, as prefix-free codes of frequency ranks. Against "
        f"the smallest trie that it made, an artifact is {', '.join(sizes[:-1])}, and "
        f"{sizes[-1]}. Builds of these sets are {speeds[0]:.1f} to {speeds[-1]:.1f} times as fast, "
        f"and a batch of lookups is {lookups[0]:.1f} to {lookups[-1]:.1f} times as fast as a loop "
        "over marisa-trie on one thread."
    )
    for peer in peers:
        if peer.speed < 1:
            text += (
                f" On {_millions(peer.keywords)} of `{peer.kind}` the build is slower, "
                f"{peer.ours['seconds']:.2f} s against {peer.theirs['seconds']:.2f} s, since the "
                "time to start the process counts."
            )
    return f"{text}\n"


def _size_in_words(peer: _Peer) -> str:
    shown = f"{abs(peer.size):.0%}"
    if shown == "0%":
        return "equal in size"
    return f"{shown} {'smaller' if peer.size < 0 else 'larger'}"


def _millions(keywords: int) -> str:
    """A number of keywords in words."""
    return f"{keywords / 1e6:.0f} million keywords"


def _marisa_table() -> str:
    """The same in full, of the reference key sets."""
    rows = [
        [
            peer.kind,
            f"{peer.keywords:,}",
            *(f"{of['bits']:.1f}" for of in (peer.ours, peer.theirs)),
            *(f"{of['seconds']:.2f} s" for of in (peer.ours, peer.theirs)),
            *(f"{of['lookups']:,}" for of in (peer.ours, peer.theirs)),
        ]
        for peer in _peers()
        if "lookups" in peer.ours
    ]
    return table(["set", "keywords", *_beside("bits a keyword", "build", "lookups/s")], rows)


def _growth_table() -> str:
    """Builds with the least and the most memory, by number of keywords."""
    grown = _read("build.json")
    rows = []
    for peer in grown["marisa"]:
        same = [row for row in grown["rows"] if row["keywords"] == peer["keywords"]]
        for row in (same[0], same[-1]):
            rows.append(
                [
                    f"{row['keywords']:,}",
                    row["memory"],
                    f"{row['bits_per_keyword']:.1f}",
                    f"{peer['bits_per_keyword']:.1f}",
                    f"{row['wall_seconds']:.2f} s",
                    f"{peer['build_seconds']:.2f} s",
                    *(f"{of['peak_rss_bytes'] / 2**20:,.0f} MiB" for of in (row, peer)),
                ]
            )
    head = ["keywords", "--memory", *_beside("bits a keyword", "build", "peak memory")]
    return table(head, rows)


def _beside(*names: str) -> list[str]:
    return [cell for name in names for cell in (name, "marisa-trie")]


def _sampling_table() -> str:
    """Ours and PyTorch's sort, of one file."""
    found = {
        (row["batch"], row["vocab"], row["mode"], row["result"]): f"{row['microseconds']:.0f}"
        for row in _read("sampling-h200.json")["rows"]
        if row["logits"] == "power"
    }
    rows = [
        [name, *(_three(found, batch, vocab, result) for batch, vocab in _SHAPES)]
        for name, result in (
            ("FlashTrie, mask", "mask"),
            ("FlashTrie, token", "token"),
            ("PyTorch, sort", "PyTorch sort"),
        )
    ]
    return table(["microseconds, k / p / k+p", *(f"{b} x {v:,}" for b, v in _SHAPES)], rows)


def _three(found: dict[tuple[Any, ...], str], batch: int, vocab: int, result: str) -> str:
    return " / ".join(found.get((batch, vocab, mode, result), "—") for mode in _MODES)


def _disk() -> str:
    """What the dry run said of the largest build, and what that took."""
    result = _read("full_scale.json")
    plan, built, made = result["plan"], result["build"], result["generate"]
    rows = [
        ["artifact", plan["artifact"], built["bytes"]],
        ["peak memory", plan["peak_memory"], built["peak_rss_bytes"]],
        ["scratch", plan["scratch"], None],
        ["Parquet of `trie generate`", None, made["bytes"]],
    ]
    keywords = built["keywords"]

    def cells(count: int | None, by_keyword: bool) -> str:
        if count is None:
            return "—"
        each = f" ({count / keywords:.2f} bytes a keyword)" if by_keyword else ""
        return f"{count / _GIGABYTE:.2f} GB{each}"

    head = [
        f"{keywords:,} keywords of kind {result['kind']}, --memory {plan['memory'] / 2**30:g}GiB",
        "--dry-run",
        "measured",
    ]
    return table(
        head,
        [[name, *(cells(count, "memory" not in name) for count in of)] for name, *of in rows],
    )


def _on_the_gpu() -> str:
    """What `trie load` said of the largest artifact."""
    result = _read("full_scale.json")
    loaded, built = result["load"], result["build"]
    on_disk, on_device = (of["bytes"] / _GIGABYTE for of in (built, loaded))
    return (
        f"The {on_disk:.2f} GB artifact of {built['keywords']:,} keywords of kind {result['kind']} "
        f"takes {on_device:.2f} GB on the GPU, and loads in {loaded['seconds']:.2f} s from the "
        f"page cache ({result['chip']}; `full_scale.json`).\n"
    )


_FIGURES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"headline": _headline, "marisa": _marisa},
    "ARCHITECTURE.md": {"marisa": _marisa},
    "docs/nightly.md": {"disk": _disk},
    "docs/serving.md": {"memory": _on_the_gpu},
    "docs/alternatives.md": {
        "marisa": _marisa_table,
        "growth": _growth_table,
        "sampling": _sampling_table,
    },
}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
