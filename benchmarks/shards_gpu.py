"""What shards and processes cost, and whether they change the weights: whole runs of `transduce train`, alternating.

    python benchmarks/shards_gpu.py                        on a GPU; writes benchmarks/results/shards-gpu.json
    python benchmarks/shards_gpu.py --device cpu           on CPU cores; writes benchmarks/results/shards-cpu.json

The variants are one process with one shard (as runs without `train.shards` are), the same under torchrun, and one and two processes
with four and with two shards: on a CPU with one thread each, on a GPU sharing it by gloo. Runs with equally many
shards must end with equal weights. On a GPU, a step whose exchanges go through NCCL, with a group of one process, must also
equal one without. Speeds are the median of the log's target tokens per second, without the first lines.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from facts import write_result

from transduce.checkpoint import RunFolder, read_about
from transduce.config import TrainConfig, TransformerConfig
from transduce.data.pages import Paging
from transduce.device import Device
from transduce.model import Transformer
from transduce.training.joined import Joined
from transduce.training.processes import Alone, Processes
from transduce.training.rendezvous import Launch
from transduce.training.sharded_graphs import ShardedGraphedUpdate
from transduce.training.sharded_state import ShardedState
from transduce.training.shards import Share

PYTHON = [sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
VARIANTS = {
    "one process, one shard": (PYTHON, 1),
    "the same under torchrun": ([*TORCHRUN, "1"], 1),
    "one process, four shards": (PYTHON, 4),
    "two processes, four shards": ([*TORCHRUN, "2"], 4),
    "one process, two shards": (PYTHON, 2),
    "two processes, two shards": ([*TORCHRUN, "2"], 2),  # one shard each: gradients are sent as bfloat16
}
SIZES = {
    "cpu": "model.d_model=128 model.d_ff=256 model.num_heads=4 model.num_encoder_layers=3 model.num_decoder_layers=3 "
    "train.tokens_per_batch=4096",
    "cuda": "model.d_model=512 model.d_ff=2048 model.num_heads=8 model.num_encoder_layers=6 model.num_decoder_layers=6 "
    "train.tokens_per_batch=102400",
}
USUAL = "model.dropout=0.1 train.log_every=5 train.validate_lines=8 train.average=0 train.schedule=inverse_sqrt"
SKIPPED = 2  # lines of the log: kernels are compiled, memory is allocated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    weights: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder, 60_000 if options.device == "cuda" else 6_000)
        for number in range(options.rounds):
            for variant in VARIANTS:
                run = folder / f"{number}-{len(weights)}-{len(speeds[variant])}-{list(VARIANTS).index(variant)}"
                speeds[variant].append(trained(run, folder, variant, options.device, options.steps))
                weights[variant] = read_about(RunFolder(run).weights("last"))["sha256"]
                print(f"{variant}: {speeds[variant][-1]:,.0f} tokens/s, weights {weights[variant][:12]}", flush=True)
    results = {
        variant: {"target_tokens_per_s": round(statistics.median(values)), "all": [round(v) for v in values]}
        for variant, values in speeds.items()
    }
    same = {
        shards: len({weights[name] for name, (_, count) in VARIANTS.items() if count == shards}) == 1
        for shards in (1, 2, 4)
    }
    through_nccl = steps_equal_through_nccl() if options.device == "cuda" else None
    command = (
        f"python benchmarks/shards_gpu.py --device {options.device} --steps {options.steps} --rounds {options.rounds}"
    )
    path = write_result(
        "shards-gpu" if options.device == "cuda" else "shards-cpu", command, ["torch"],
        results=results, equal_weights_with_shards=same, equal_through_nccl=through_nccl, load=os.getloadavg()[0],
    )  # fmt: skip
    print(path)


def write_pairs(folder: Path, count: int) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 7))) for _ in range(3_000)]
    for name, lines in (("train", count), ("valid", 100)):
        rows = [draw.choices(words, k=draw.randint(4, 30)) for _ in range(lines)]
        (folder / f"{name}.tsv").write_text("".join(f"{' '.join(row)}\t{' '.join(row[::-1])}\n" for row in rows))


def trained(run: Path, folder: Path, variant: str, device: str, steps: int) -> float:
    """Train, and return the speed."""
    launcher, shards = VARIANTS[variant]
    settings = [*SIZES[device].split(), *USUAL.split(), f"train.shards={shards}", f"train.device={device}"]
    intervals = [f"train.validate_every={steps}", f"train.checkpoint_every={steps}", f"train.steps={steps}"]
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--quiet"]
    command = [*launcher, "-m", "transduce", "train", str(run), *files, "--set", *settings, *intervals]
    os.environ["TRANSDUCE_CACHE"] = str(folder / "cache")
    subprocess.run([*command, "data.vocabulary_size=4000"], check=True)
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([line["tokens_per_second"] for line in log if line["event"] == "train"][SKIPPED:])


def steps_equal_through_nccl() -> bool:
    """Whether five steps with exchanges through NCCL equal five without."""
    alone = digest_after_steps(Alone)
    joined = digest_after_steps(lambda: Joined(torch.distributed.HashStore(), Launch(), 1, "nccl", 60.0))
    torch.distributed.destroy_process_group()
    return alone == joined


def digest_after_steps(connect: Callable[[], Processes]) -> str:
    torch.manual_seed(1)
    config = TransformerConfig(d_model=256, d_ff=1024, num_heads=4, num_encoder_layers=2, num_decoder_layers=2)
    train, device, share = TrainConfig(shards=4, clip_norm=1.0), Device("cuda", bf16=True), Share(4)
    processes = connect()
    model = Transformer(config, 1000, 1000).to("cuda")
    sliced = ShardedState(model, train, share, processes).sliced
    update = ShardedGraphedUpdate(model, sliced, train, device, share, processes)
    pairs = RandomPairs(4_000)
    planner = Paging(tokens_per_batch=16_384, max_positions=131_072, seed=1, width=128, shards_per_step=4)
    for number, step in enumerate(planner.plan(pairs, 0)[:5]):
        update.begin(number)
        for group in share.work(planner, step, lambda pages: planner.make(pairs, pages, 999, 999)):
            update.add(group, 16_384)
        update.apply(1e-3)
    return hashlib.sha256(sliced.weights.cpu().numpy().tobytes()).hexdigest()


class RandomPairs:
    """Random ids, as a planner reads them."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.source_lengths, self.target_lengths = (draw.integers(5, 60, count).astype(np.int32) for _ in range(2))
        self.groups = (count,)

    def sources(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(self.source_lengths[n]) % 900 + 3 for n in numbers])

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(self.target_lengths[n]) % 900 + 3 for n in numbers])


if __name__ == "__main__":
    main()
