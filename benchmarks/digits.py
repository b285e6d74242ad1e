"""Spoken digits on a CPU: the recipe configs/spoken-digits.toml through the command line, the time it takes, and how many digits are right.

    python benchmarks/digits.py [--seeds 1 2]        on cores that do nothing else; needs soundfile

The speakers of the validation and of the test data are in no training data. Seconds are those of the whole training command, features and
validations included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from facts import HERE, default_data, write_result

CONFIG = HERE.parent / "configs" / "spoken-digits.toml"
SPLITS = {"valid": "lucas", "test": "theo"}  # and their speakers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data() / "spoken-digits")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    load, runs = os.getloadavg()[0], []
    for seed in options.seeds:
        runs.append(run(seed, options.data))
        print(json.dumps(runs[-1]), flush=True)
    command = f"python benchmarks/digits.py --seeds {' '.join(map(str, options.seeds))}"
    print(write_result("digits-cpu", command, ["torch"], load_at_start=round(load, 2), runs=runs))


def run(seed: int, data: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = ["--train", str(data / "train.tsv"), "--valid", str(data / "valid.tsv"), "--config", str(CONFIG)]
        settings = [f"train.seed={seed}", f"data.cache={folder}/cache"]
        begun = time.perf_counter()
        trained = call(["train", f"{folder}/run", *files, "--set", *settings])
        seconds = time.perf_counter() - begun
        right = {split: exact(f"{folder}/run", data / f"{split}.tsv") for split in SPLITS}
    return {
        "seed": seed,
        "command_s": round(seconds, 1),
        "training_s": round(trained["seconds"], 1),
        "steps": trained["steps"],
        "right": right,
    }


def exact(run: str, table: Path) -> float:
    """The percentage of recordings whose digit is right."""
    (score,) = call(["evaluate", run, str(table), "--metrics", "exact-match"])["scores"].values()
    return round(float(score["value"]), 2)


def call(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "transduce", *arguments, "--json", "--quiet"]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


if __name__ == "__main__":
    main()
