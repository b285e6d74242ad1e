"""Kill a run at random moments, resume it, and compare its weights with those of a run nobody killed.

    python benchmarks/kills.py --runs 20 --data FOLDER

Each of the runs learns English pronunciation (CMUdict) for some steps through the command line and is killed once with
`kill -9` at a random moment of its life: while reading, training, validating or writing. Writes benchmarks/results/kills.json, or
kills-gpu.json where there is a GPU.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from facts import default_data, write_result

from transduce.checkpoint import RunFolder, read_about

SETTINGS = """
model.d_model=64 model.d_ff=128 model.num_encoder_layers=1 model.num_decoder_layers=1 model.dropout=0.1 train.steps=120
train.tokens_per_batch=512 train.log_every=5 train.validate_every=40 train.checkpoint_every=15
train.validate_lines=40 train.average=3
""".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=default_data())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        straight, seconds = finish(Path(folder) / "straight", options.data)
        draw, equal, moments = random.Random(1), 0, []
        for number in range(options.runs):
            run = Path(folder) / f"killed-{number}"
            moments.append(kill(run, options.data, draw.uniform(0.1, 0.98) * seconds))
            equal += finish(run, options.data)[0] == straight
            print(f"{number + 1}: killed after {moments[-1]}; {equal} equal so far", flush=True)
    command = f"python benchmarks/kills.py --runs {options.runs}"
    name = "kills-gpu" if torch.cuda.is_available() else "kills"
    print(write_result(name, command, ["torch"], kills=options.runs, equal=equal, killed=moments, weights=straight))


def train(run: Path, data: Path) -> list[str]:
    files = ["--train", str(data / "cmudict/valid.tsv"), "--valid", str(data / "cmudict/valid.tsv")]
    return [sys.executable, "-m", "transduce", "train", str(run), *files, "--quiet", "--set", *SETTINGS]


def finish(run: Path, data: Path) -> tuple[dict[str, str], float]:
    """The hashes of the weights a run ends with, and how long it took."""
    begun = time.perf_counter()
    subprocess.run(train(run, data), check=True)
    folder = RunFolder(run)
    hashes = {which: read_about(folder.weights(which))["sha256"] for which in ("best", "last", "averaged")}
    return hashes, time.perf_counter() - begun


def kill(run: Path, data: Path, after: float) -> str:
    """Kill after some seconds; how far it had come."""
    process = subprocess.Popen(train(run, data))
    time.sleep(after)
    process.kill()
    process.wait()
    lines = (run / "metrics.jsonl").read_text().count("\n") if (run / "metrics.jsonl").exists() else 0
    return f"{after:.1f} s, {lines} lines of log"


if __name__ == "__main__":
    main()
