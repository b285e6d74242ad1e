"""Table 1 of the paper, measured: operations, time by length and width, sequential steps, path lengths.

    python benchmarks/complexity.py --device cpu        CPU seconds of one thread; about a quarter of an hour
    python benchmarks/complexity.py --device cuda       under four minutes of one GPU
    python benchmarks/complexity.py --page              writes docs/complexity.md and its plots from both result files

Each layer runs forward and backward at n = 16 ... 16,384 and d = 64 ... 1,024, in float16 on a GPU and float32 on a CPU. Exponents are
the slopes of time over size in logarithms, over the four smallest and the four largest sizes.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from facts import write_result
from pages.complexity import write_page

from transduce.paper.complexity import (
    PATHS,
    Stopwatch,
    Timing,
    counted_operations,
    measure_constant,
    measure_grid,
    measure_path,
)
from transduce.paper.layers import KINDS, Kind

PATH_LENGTHS = (16, 64, 256)
LENGTHS = [16 * 2**i for i in range(11)]
WIDTHS = [64, 128, 256, 512, 1_024]
SIZES = {  # rows; length and width of the slices shown; positions at constant n x batch
    "cpu": (1, 256, 256, 16_384),
    "cuda": (8, 512, 512, 131_072),
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
    batch, n_shown, d_shown, positions = SIZES[device]
    lengths = [n for n in LENGTHS if n <= longest]
    watch = Stopwatch(device)
    grid = measure_grid(watch, lengths, WIDTHS, batch, show)
    constant = measure_constant(watch, [n for n in lengths if n <= positions], d_shown, positions, show)
    return write_result(
        f"complexity-{'gpu' if device == 'cuda' else 'cpu'}",
        f"python benchmarks/complexity.py --device {device}",
        ["torch"],
        n_shown=n_shown,
        d_shown=d_shown,
        operations=[operations(kind, n, d) for kind in KINDS for n in lengths for d in WIDTHS],
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


if __name__ == "__main__":
    main()
