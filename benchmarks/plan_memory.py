"""The memory and time of planning epochs of a very large corpus, from lengths alone: as a whole, and in windows.

    python benchmarks/plan_memory.py --pairs 100000000

Lengths are synthetic (log-normal, 27 tokens on average) and memory-mapped, as those of a store are. Each way runs in a process
of its own: the plan of a whole epoch for a few million pairs, from which bytes per pair follow, and windows of all pairs, of
which the first, one in the middle and the last are planned. Memory is the growth of the resident set without the mapped
file. Writes benchmarks/results/plan-memory.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from facts import write_result

from transduce.data import Mixture, Windows
from transduce.data.batches import Batching
from transduce.data.pages import Paging
from transduce.data.windows import WINDOW

PLANNERS = {
    "pages": Paging(tokens_per_batch=25_600, max_positions=131_072, seed=1),
    "padded": Batching(tokens_per_batch=25_600, max_positions=25_600, seed=1),
}
WHOLE = 1 << 22  # pairs that are planned as a whole
BLOCK = 1 << 20


class Lengths:
    """Memory-mapped lengths."""

    def __init__(self, folder: Path, pairs: int) -> None:
        self.source_lengths, self.target_lengths = (
            np.asarray(np.memmap(folder / name, np.int32, "r", shape=pairs)) for name in ("source", "target")
        )
        self.groups = (pairs,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000_000)
    parser.add_argument("--one", nargs=3, metavar=("FOLDER", "PLANNER", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(planned(Path(options.one[0]), options.pairs, *options.one[1:])))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        write_lengths(Path(folder), options.pairs)
        for planner in PLANNERS:
            for way in ("whole", "windows"):
                pairs = min(options.pairs, WHOLE) if way == "whole" else options.pairs
                command = [sys.executable, __file__, "--pairs", str(pairs), "--one", folder, planner, way]
                results[f"{planner}, {way}"] = json.loads(
                    subprocess.run(command, check=True, capture_output=True).stdout
                )
    for name, figures in results.items():
        print(name, figures)
    command = f"python benchmarks/plan_memory.py --pairs {options.pairs}"
    print(write_result("plan-memory", command, ["numpy"], pairs=options.pairs, window=WINDOW, results=results))


def write_lengths(folder: Path, pairs: int) -> None:
    draw = np.random.default_rng(0)
    with open(folder / "source", "wb") as source, open(folder / "target", "wb") as target:
        for begin in range(0, pairs, BLOCK):
            count = min(BLOCK, pairs - begin)
            lengths = draw.lognormal(3.2, 0.5, count).clip(2, 250)
            source.write(lengths.astype(np.int32).tobytes())
            target.write((lengths * draw.normal(1, 0.15, count)).clip(2, 250).astype(np.int32).tobytes())


def planned(folder: Path, pairs: int, planner: str, way: str) -> dict[str, float]:
    lengths, mixture = Lengths(folder, pairs), Mixture.of((pairs,), ())
    windows = Windows(mixture, 1, 0 if way == "whole" else WINDOW)
    count = windows.count(0)
    before, begun, steps = own_memory(), time.process_time(), 0
    chosen = sorted({0, count // 2, count - 1})
    for window in chosen:
        plan = windows.plan(PLANNERS[planner], lengths, 0, window)
        steps += len(plan)
    seconds, peak = time.process_time() - begun, own_memory("RssAnon", peak=True)
    return {
        "pairs": pairs,
        "windows": count,
        "planned": len(chosen),
        "steps": steps,
        "mb": round((peak - before) / 1e6, 1),
        "bytes_per_pair": round((peak - before) / pairs, 2),
        "cpu_s_per_million_pairs": round(1e6 * seconds / (pairs * len(chosen) / count), 2),
    }


def own_memory(name: str = "RssAnon", peak: bool = False) -> int:
    """Bytes of this process that are not mapped files; the peak is that of all resident memory without files mapped now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    number = lambda key: 1024 * int(status[key].split()[0])  # noqa: E731
    return number("VmHWM") - number("RssFile") if peak else number(name)


if __name__ == "__main__":
    main()
