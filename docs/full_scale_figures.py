"""The part of docs/benchmarks.md about the whole chain, from Parquet to searches on the GPU."""

from __future__ import annotations

from typing import Any

from search_figures import EQUAL, precision, table, widths

Result = dict[str, Any]

_WHAT = {
    "generate": "{files} files, {bytes:,} bytes of Parquet",
    "build": "{bytes:,} bytes, {bits_per_keyword:.1f} bits a keyword without the alphabet; at most "
    "{peak_rss_bytes:,} bytes of memory",
    "verify_cpu": "against the Parquet: {checks}",
    "verify_gpu": "against the Parquet: {checks}",
    "load": "{seconds:.2f} s from the file to the device, {gigabytes_per_second:.1f} GB/s of the "
    "file; {bytes:,} bytes there, of which {derived_bytes:,} are derived",
    "search": "{searched:,} searches in {rows} rows",
}


def full_scale(result: Result) -> str:
    """The part, of the file that benchmarks/full_scale.py writes."""
    done = {name: result[name] for name in _WHAT if result.get(name)}
    parts = [
        f"## {result['keywords']:,} keywords\n\n{result['chip']}, driver {result['driver']}, "
        f"{result['processor']} with {result['cores']} cores and "
        f"{result['memory_bytes'] / 2**30:.0f} GiB, commit {result['commit'][:9]}. "
        f"`python -m benchmarks.full_scale`: kind {result['kind']}, {result['vocab_size']:,} "
        f"tokens, seed {result['seed']}. Seconds are wall time from process start.\n",
        table(
            ["command", "seconds", ""],
            [
                [f"`{made['command']}`", made["wall_seconds"], _WHAT[name].format(**_facts(made))]
                for name, made in done.items()
            ],
        ),
    ]
    if built := done.get("build"):
        phases = ", ".join(f"{name} {seconds} s" for name, seconds in built["phases"].items())
        parts.append(f"The build by phase: {phases}.\n")
    if "search" in done and done["search"]["device"] == "cuda":
        one = done["search"]["rows"][0]
        parts.append(
            f"Searches have {one['top_k']:,} proposals a step, {one['steps']} steps and full "
            f"beams; no query is timed twice. {EQUAL}\n\n{widths(done['search'])}"
        )
    if made := (result.get("precision") or {}).get("precision"):
        parts.append(precision(made))
    parts.append(
        "[results.md](results.md) has these beside what the papers claim.\n\n"
        "![speed and precision by beam width](../benchmarks/results/full_scale.png)\n"
    )
    return "\n".join(parts)


def _facts(made: Result) -> Result:
    """What the lines of _WHAT name."""
    facts = dict(made)
    if checks := made.get("checks"):
        wrong = [check["name"] for check in checks if not check["ok"]]
        facts["checks"] = (
            f"WRONG: {', '.join(wrong)}" if wrong else f"all {len(checks)} checks hold"
        )
    if isinstance(rows := made.get("rows"), list):
        facts |= {"searched": sum(row["queries"] for row in rows), "rows": len(rows)}
    return facts
