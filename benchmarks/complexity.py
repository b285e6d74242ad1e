"""Table 1 of the paper, measured: operations, time by length and width, sequential steps, path lengths.

    python benchmarks/complexity.py --device cpu        small sizes, CPU seconds of one thread; about two minutes
    python benchmarks/complexity.py --device cuda       n = 16 ... 16,384, d = 64 ... 1,024; under four minutes of one GPU
    python benchmarks/complexity.py --page              writes docs/complexity.md and its plots from both result files

Each layer runs forward and backward, in float16 on a GPU and float32 on a CPU. Exponents are the slopes of time over size in
logarithms, over the four smallest and the four largest sizes.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from facts import HERE, RESULTS, write_result

from transduce.paper.complexity import (
    PATHS,
    Points,
    Stopwatch,
    Timing,
    counted_operations,
    ends,
    exponent,
    measure_constant,
    measure_grid,
    measure_path,
)
from transduce.paper.layers import KINDS, Kind
from transduce.paper.plots import Plot, draw, for_document

PAGE, PICTURES = HERE.parent / "docs" / "complexity.md", HERE.parent / "docs" / "images"
BEGIN, END = "<!-- tables: python benchmarks/complexity.py --page -->", "<!-- end of tables -->"
PATH_LENGTHS = (16, 64, 256)
SIZES = {  # lengths, widths, rows; length and width of the slices shown; positions at constant n x batch
    "cpu": ([16 * 2**i for i in range(8)], [64, 128, 256, 512], 1, 256, 256, 4_096),
    "cuda": ([16 * 2**i for i in range(11)], [64, 128, 256, 512, 1_024], 8, 512, 512, 131_072),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--longest", type=int, default=1 << 20, help="no rows longer than this")
    parser.add_argument("--page", action="store_true", help="write the page from the results instead")
    options = parser.parse_args()
    if options.page:
        write_page()
    else:
        print(measure(options.device, options.longest))


def measure(device: str, longest: int) -> Path:
    torch.set_num_threads(1)
    lengths, widths, batch, n_shown, d_shown, positions = SIZES[device]
    lengths = [n for n in lengths if n <= longest]
    watch = Stopwatch(device)
    grid = measure_grid(watch, lengths, widths, batch, show)
    constant = measure_constant(watch, [n for n in lengths if n <= positions], d_shown, positions, show)
    return write_result(
        f"complexity-{'gpu' if device == 'cuda' else 'cpu'}",
        f"python benchmarks/complexity.py --device {device}",
        ["torch"],
        n_shown=n_shown,
        d_shown=d_shown,
        operations=[operations(kind, n, d) for kind in KINDS for n in lengths for d in widths],
        paths=[asdict(measure_path(name, n)) for name in PATHS for n in PATH_LENGTHS],
        grid=[asdict(timing) for timing in grid],
        constant=[asdict(timing) for timing in constant],
    )


def show(timing: Timing) -> None:
    print(
        f"{timing.layer:16} n {timing.n:6} d {timing.d:5} rows {timing.batch:5}  {1e3 * timing.seconds:10.3f} ms",
        flush=True,
    )


def operations(kind: Kind, n: int, d: int) -> dict[str, object]:
    return {
        "layer": kind.name,
        "n": n,
        "d": d,
        "counted": counted_operations(kind, n, d),
        "formula": kind.operations(n, d),
    }


# --- the page -----------------------------------------------------------------------------------------------------


def write_page() -> None:
    found = {
        name: json.loads(path.read_text())
        for name in ("cpu", "gpu")
        if (path := RESULTS / f"complexity-{name}.json").exists()
    }
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    for device, record in found.items():
        (PICTURES / f"complexity-{device}.svg").write_text(
            for_document(draw(plots(record), columns=3)), encoding="utf-8"
        )


def replaced(text: str, found: dict[str, dict]) -> str:
    """The page with up-to-date tables between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [operations_table(found["gpu" if "gpu" in found else "cpu"]), paths_table(found["cpu"])]
    parts += [times_part(device, record) for device, record in found.items()]
    return f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}"


def operations_table(record: dict) -> str:
    by_size = {(row["layer"], row["n"], row["d"]): row for row in record["operations"]}
    n_most, d = max(n for _, n, _ in by_size), record["d_shown"]
    shown = [64, d, n_most]
    lines = [
        f"| layer | paper, per layer | {' | '.join(f'n = {n:,}' for n in shown)} |",
        "| --- |" + " --- |" * (1 + len(shown)),
    ]
    for kind in KINDS:
        cells = [f"{by_size[kind.name, n, d]['counted']:.3g}" for n in shown]
        lines.append(f"| {kind.name} | O({kind.paper[0]}) | {' | '.join(cells)} |")
    agree = all(row["counted"] == row["formula"] for row in record["operations"])
    said = (
        "equals the formula of the layer at every size measured" if agree else "differs from the formula of the layer"
    )
    return "\n".join(
        [
            f"Operations of a forward pass over one sentence, d = {d}, as PyTorch counts them; the count {said}:",
            "",
            *lines,
        ]
    )


def paths_table(record: dict) -> str:
    by_size = {(row["layer"], row["n"]): row for row in record["paths"]}
    lines = [f"| layer | {' | '.join(f'n = {n}' for n in PATH_LENGTHS)} |", "| --- |" + " --- |" * len(PATH_LENGTHS)]
    for name in PATHS:
        cells = [path_cell(by_size[name, n]) for n in PATH_LENGTHS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(["The fewest layers at which the last output has a gradient at the first input:", "", *lines])


def path_cell(row: dict) -> str:
    steps = f" ({row['steps']} steps)" if row["steps"] != row["layers"] else ""
    return f"{row['layers']} layer{'s' * (row['layers'] > 1)}{steps}"


def times_part(device: str, record: dict) -> str:
    hardware = record["hardware"]
    where = hardware["gpu"] if device == "gpu" else f"one core of an {hardware['cpu']}, CPU seconds"
    n, d = record["n_shown"], record["d_shown"]
    lines = [
        f"| layer | exponent in n, d = {d} | exponent in d, n = {n} | exponent in n, n x rows constant | slowest |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        slices = [in_n(record, kind.name), in_d(record, kind.name)]
        cells = [
            f"{small:.2f} → {large:.2f}"
            for small, large in (ends(points, 3 if device == "cpu" else 4) for points in slices)
        ]
        cells.append(f"{exponent(at_constant(record, kind.name)):.2f}")
        slowest = max((row for row in record["grid"] if row["layer"] == kind.name), key=lambda row: row["seconds"])
        cells.append(f"{1e3 * slowest['seconds']:,.1f} ms at n = {slowest['n']:,}, d = {slowest['d']:,}")
        lines.append(f"| {kind.name} | {' | '.join(cells)} |")
    rows = record["grid"][0]["batch"]
    about = f"Time of a training pass over {rows} row{'s' * (rows > 1)} on {where}: exponents over the smallest → over the largest sizes:"
    return "\n".join(
        [about, "", *lines, "", f"![time over length and width, {device.upper()}](images/complexity-{device}.svg)"]
    )


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


if __name__ == "__main__":
    main()
