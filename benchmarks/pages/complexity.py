"""docs/complexity.md: its tables and plots."""

import json
from collections.abc import Iterator

from facts import RESULTS

from transduce.paper.complexity import AT_EACH_END, PATHS, Points, ends, exponent
from transduce.paper.layers import KINDS
from transduce.paper.plots import Plot, draw, for_document

from .parts import DOCS, replace_part, table

COMMAND = "complexity.py --page"


def write_page() -> None:
    found = {
        name: json.loads(path.read_text())
        for name in ("cpu", "gpu")
        if (path := RESULTS / f"complexity-{name}.json").exists()
    }
    page = DOCS / "complexity.md"
    page.write_text(replaced(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    for device, record in found.items():
        svg = for_document(draw(plots(record), columns=3))
        (DOCS / "images" / f"complexity-{device}.svg").write_text(svg, encoding="utf-8")


def replaced(text: str, found: dict[str, dict]) -> str:
    parts = [*operations_part(found["gpu" if "gpu" in found else "cpu"]), *paths_part(found["cpu"])]
    parts += [part for device, record in found.items() for part in times_part(device, record)]
    return replace_part(text, "tables", COMMAND, "\n\n".join(parts))


def operations_part(record: dict) -> Iterator[str]:
    by_size = {(row["layer"], row["n"], row["d"]): row for row in record["operations"]}
    d = record["d_shown"]
    lengths = [64, d, max(n for _, n, _ in by_size)]
    agree = all(row["counted"] == row["formula"] for row in record["operations"])
    said = (
        "equals the formula of the layer at every size measured" if agree else "differs from the formula of the layer"
    )
    yield f"Operations of a forward pass over one sentence, d = {d}, as PyTorch counts them; the count {said}:"
    yield table(
        ("layer", "paper, per layer", *(f"n = {n:,}" for n in lengths)),
        [
            (kind.name, f"O({kind.paper[0]})", *(f"{by_size[kind.name, n, d]['counted']:.3g}" for n in lengths))
            for kind in KINDS
        ],
    )


def paths_part(record: dict) -> Iterator[str]:
    by_size = {(row["layer"], row["n"]): row for row in record["paths"]}
    lengths = sorted({n for _, n in by_size})
    yield "The fewest layers at which the last output has a gradient at the first input:"
    yield table(
        ("layer", *(f"n = {n}" for n in lengths)),
        [(name, *(path_cell(by_size[name, n]) for n in lengths)) for name in PATHS],
    )


def path_cell(row: dict) -> str:
    steps = f" ({row['steps']} steps)" if row["steps"] != row["layers"] else ""
    return f"{row['layers']} layer{'s' * (row['layers'] > 1)}{steps}"


def times_part(device: str, record: dict) -> Iterator[str]:
    hardware, batch = record["hardware"], record["grid"][0]["batch"]
    where = hardware["gpu"] if device == "gpu" else f"one core of an {hardware['cpu']}, CPU seconds"
    yield f"Time of a training pass over {batch} row{'s' * (batch > 1)} on {where}: exponents over the {AT_EACH_END} smallest → over the {AT_EACH_END} largest sizes:"
    n, d = record["n_shown"], record["d_shown"]
    header = (
        "layer",
        f"exponent in n, d = {d}",
        f"exponent in d, n = {n}",
        "exponent in n, same number of tokens",
        "slowest",
    )
    yield table(header, [times_row(record, kind.name) for kind in KINDS])
    yield f"![time over length and width, {device.upper()}](images/complexity-{device}.svg)"


def times_row(record: dict, layer: str) -> tuple[str, ...]:
    slices = [in_n(record, layer), in_d(record, layer)]
    exponents = [f"{small:.2f} → {large:.2f}" for small, large in map(ends, slices)]
    slowest = max((row for row in record["grid"] if row["layer"] == layer), key=lambda row: row["seconds"])
    longest = f"{1e3 * slowest['seconds']:,.1f} ms at n = {slowest['n']:,}, d = {slowest['d']:,}"
    return (layer, *exponents, f"{exponent(at_constant(record, layer)):.2f}", longest)


def in_n(record: dict, layer: str) -> Points:
    return [
        (row["n"], row["seconds"]) for row in record["grid"] if row["layer"] == layer and row["d"] == record["d_shown"]
    ]


def in_d(record: dict, layer: str) -> Points:
    return [
        (row["d"], row["seconds"]) for row in record["grid"] if row["layer"] == layer and row["n"] == record["n_shown"]
    ]


def at_constant(record: dict, layer: str) -> Points:
    return [(row["n"], row["seconds"]) for row in record["constant"] if row["layer"] == layer]


def plots(record: dict) -> list[Plot]:
    names = [kind.name for kind in KINDS]
    positions = record["constant"][0]["n"] * record["constant"][0]["batch"]
    shown = {
        f"time over length, d = {record['d_shown']}": ("n", in_n),
        f"time over width, n = {record['n_shown']}": ("d", in_d),
        f"{positions:,} positions in rows of n": ("n", at_constant),
    }
    return [
        Plot(title, x, "seconds", {name: points(record, name) for name in names}, log_x=True, log_y=True)
        for title, (x, points) in shown.items()
    ]
