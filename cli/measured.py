"""What all suites of `trie bench` print: the machine, and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flashtrie.cli.output import Output, facts, table

SEED = 0


def machine(device: str) -> dict[str, Any]:
    """Device, chip and driver."""
    if device == "cuda":
        from flashtrie.gpu.devices import chip, driver

        return {"device": device, "chip": chip(), "driver": driver()}
    from flashtrie.cpu.machine import processor

    return {"device": device, "chip": processor(), "driver": None}


def key_set(header: Any) -> dict[str, Any]:
    """Kind, commit, keywords and seed, of what is searched."""
    from flashtrie.cpu.machine import commit

    return {
        "kind": header.tags.get("kind"),
        "commit": commit(),
        "keywords": header.keywords,
        "seed": SEED,
    }


def print_rows(output: Output, head: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """As JSON, or the head and a table, which leaves out lists."""
    names = [name for name, value in rows[0].items() if not isinstance(value, list)]
    cells = [[row[name] for name in names] for row in rows]
    text = f"{facts(head.items())}\n\n{table(names, cells)}"
    output.result({**head, "rows": list(rows)}, text)
