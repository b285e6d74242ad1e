"""What comes with a training step and is not the step: clipping, a moving average, logging, adding up gradients.

    python benchmarks/extras.py [--steps 300] [--rounds 2] -- --config CONFIG --train SOURCE TARGET ...

What stands behind `--` is for `transduce train`. Every variant is a run of its own through the command line, alternating; its speed
is that of the steps after the first WARM, as its own log has it. Writes benchmarks/results/extras-cpu.json or extras-gpu.json.

bare            no clipping, no average, a line of the log every 50 steps
with extras     clipping, a moving average of the weights, a line of the log every 10 steps
and added up    the same, steps of twice as many tokens, each as two batches whose gradients are added up
"""

import argparse
import itertools
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from facts import write_result

WARM = 100  # steps
EXTRAS = "train.clip_norm=1 train.ema=0.999 train.log_every=10"
BARE = "train.clip_norm=0 train.ema=0 train.log_every=50"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=25_600, help="of a step")
    parser.add_argument("train", nargs="+")
    options = parser.parse_args()
    variants = {
        "bare": BARE,
        "with extras": EXTRAS,
        "and added up": f"{EXTRAS} train.tokens_per_batch={2 * options.tokens} train.positions_per_microbatch={options.tokens}",
    }
    rounds = [{name: speed(options, settings) for name, settings in variants.items()} for _ in range(options.rounds)]
    results: dict[str, Any] = {}
    for name in variants:
        ratios = sorted(one["bare"] / one[name] - 1 for one in rounds)
        results[name] = {
            "target_tokens_per_s": round(statistics.median(one[name] for one in rounds)),
            "slower_by": {"median": round(statistics.median(ratios), 4), "least_most": [ratios[0], ratios[-1]]},
        }
        print(name, results[name])
    settings = {"steps": options.steps, "rounds": options.rounds, "tokens": options.tokens, "variants": variants}
    name = f"extras-{'gpu' if torch.cuda.is_available() else 'cpu'}"
    command = f"python benchmarks/extras.py {shlex.join(sys.argv[1:])}"
    print(write_result(name, command, ["torch"], settings=settings, results=results))


def speed(options: argparse.Namespace, settings: str) -> float:
    """Target tokens a second of a run with these settings."""
    common = f"train.steps={options.steps} train.epochs=0 train.minutes=0 train.tokens_per_batch={options.tokens}"
    quiet = "train.validate_every=1000000 train.checkpoint_every=1000000 train.validate_lines=1 train.average=0"
    with tempfile.TemporaryDirectory() as folder:
        given = [*options.train, "--set", *common.split(), *quiet.split(), *settings.split()]
        command = [sys.executable, "-m", "transduce", "train", f"{folder}/run", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "train"]
    pairs = [(one, two) for one, two in itertools.pairwise(logged) if one["step"] >= WARM]
    tokens = [two["target_tokens"] - one["target_tokens"] for one, two in pairs]
    return sum(tokens) / sum(count / two["tokens_per_second"] for count, (_, two) in zip(tokens, pairs, strict=True))


if __name__ == "__main__":
    main()
