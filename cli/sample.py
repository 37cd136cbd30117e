"""`trie sample`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flashtrie.cli.options import Device, Force, Json, Quiet, choose_device, option
from flashtrie.cli.output import Output, table
from flashtrie.cli.progress import progress

_PART_ENTRIES = 1 << 24  # that are selected from at a time


def sample(
    logits: Annotated[
        str,
        typer.Argument(metavar="LOGITS", help="[B, V] in npy; or npz, safetensors with logits."),
    ],
    top_k: Annotated[int, option("Keep the K largest of each row; 0 is off.", "K")] = 0,
    top_p: Annotated[float, option("Keep a prefix of mass P of each row; 1 is off.", "P")] = 1.0,
    temperature: Annotated[float, option("Divides the logits; 0 keeps the largest.", "T")] = 1.0,
    seed: Annotated[int | None, option("Draw a token of each row.", "S")] = None,
    device: Device = "auto",
    output: Annotated[
        str | None, option("Write npz or safetensors.", "FILE", "-o", "--output")
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Select the top-k and top-p of logits exactly, and draw tokens.

    Without -o it prints how many entries each row keeps, and log_mass. FILE gets what is kept:
    indices and values by falling value, offsets [B + 1], log_mass, and with --seed tokens and
    logprobs. JSON has null where a number is infinite, as log_mass is of a row that is all -inf.
    """
    out = Output(json, quiet)
    device = choose_device(device, out)
    import numpy as np

    from flashtrie import sampling
    from flashtrie.cpu.sampling_files import check_selection_output, read_logits, write_selection

    if output:
        check_selection_output(output, force=force, reads=[logits])
    given, bfloat16 = read_logits(logits)
    out.note_if_compiling()
    parts: list[dict[str, Any]] = []
    step = max(1, _PART_ENTRIES // given.shape[1])
    put, get = _on_cuda() if device == "cuda" else (np.asarray, np.asarray)
    with progress(out) as report:
        for first in range(0, len(given), step):
            part = put(given[first : first + step])
            kept = sampling.candidates(part, top_k, top_p, temperature, in_order=True)
            indices = get(kept.indices)
            found = {
                "indices": indices[indices >= 0],
                "values": get(kept.values)[indices >= 0],
                "counts": get(kept.counts),
                "log_mass": get(kept.log_mass),
            }
            if seed is not None:
                positions = put(np.arange(first, first + len(part)))
                drawn = sampling.sample(part, seed, positions, top_k, top_p, temperature)
                found |= {"tokens": get(drawn.tokens), "logprobs": get(drawn.logprobs)}
            parts.append(found)
            if report:
                report("sample", first + len(part), len(given), "rows")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    counts = arrays.pop("counts")
    if output:
        arrays["offsets"] = np.concatenate([[0], np.cumsum(counts)])
        write_selection(output, arrays, bfloat16=bfloat16, force=force)
    columns = {"row": np.arange(len(counts)), "count": counts, "log_mass": arrays["log_mass"]}
    columns |= {name: arrays[name] for name in ("tokens", "logprobs") if name in arrays}
    rows = [
        dict(zip(columns, values, strict=True))
        for values in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    result = {"device": device, "rows": rows, "output": output}
    out.result(result, table(list(columns), [list(row.values()) for row in rows]))


def _on_cuda() -> tuple[Any, Any]:
    """To the device and back."""
    import cupy

    return cupy.asarray, cupy.asnumpy
