"""What a step costs on a CPU when it is cut into shards: CPU seconds, which other programs on the machine hardly change.

    python benchmarks/shards_step.py

Takes turns between the threaded step of runs with one shard (rows divided among threads) and steps of four shards, on the same
padded batches. Writes benchmarks/results/shards-step.json.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from facts import write_result

from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch, Batching, make_batch
from transduce.device import choose_device
from transduce.model import Transformer
from transduce.training.optimizer import make_optimizer
from transduce.training.processes import Alone
from transduce.training.sharded_state import ShardedState
from transduce.training.sharded_update import ShardedUpdate
from transduce.training.shards import Share
from transduce.training.update import PlainUpdate

SIZE, THREADS, SHARDS, ROUNDS = 4_000, 2, 4, 7
MODEL = TransformerConfig(d_model=128, d_ff=256, num_heads=4, num_encoder_layers=3, num_decoder_layers=3, dropout=0.1)
BATCHING = Batching(tokens_per_batch=4_096, max_positions=2_048, seed=1)


class RandomPairs:
    """Random ids, as a planner reads them."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.sides = [[draw.integers(3, SIZE - 1, draw.integers(5, 40)) for _ in range(count)] for _ in range(2)]
        self.source, self.target = (side.__getitem__ for side in self.sides)
        self.source_lengths, self.target_lengths = (
            np.array([len(one) for one in side], np.int32) for side in self.sides
        )


PAIRS = RandomPairs(2_000)


def make(numbers: np.ndarray) -> Batch:
    return make_batch(PAIRS, numbers, SIZE - 1, SIZE - 1)


def plain() -> Callable[[list], None]:
    torch.manual_seed(1)
    model, train = Transformer(MODEL, SIZE, SIZE), TrainConfig()
    update = PlainUpdate(model, make_optimizer(model, train), train, choose_device("cpu", "fp32", THREADS))

    def step(planned: list) -> None:
        for batch in [make(numbers) for numbers in planned]:
            update.add(batch, 4_096)
        update.apply(1e-4)

    return step


def sharded() -> Callable[[list], None]:
    torch.manual_seed(1)
    model, train, share = Transformer(MODEL, SIZE, SIZE), TrainConfig(shards=SHARDS), Share(SHARDS, at_once=THREADS)
    sliced = ShardedState(model, train, share, Alone()).sliced
    update = ShardedUpdate(model, sliced, train, choose_device("cpu", "fp32", THREADS), share, Alone())

    def step(planned: list) -> None:
        update.begin(1)
        for group in share.work(BATCHING, planned, make):
            update.add(group, 4_096)
        update.apply(1e-4)

    return step


def main() -> None:
    ways = {"one shard, rows divided among two threads": plain(), "four shards on two threads": sharded()}
    steps = BATCHING.plan(PAIRS, 0)[:ROUNDS]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for step in [steps[0], *steps]:
        for name, run in ways.items():
            begun = time.process_time()
            run(step)
            seconds[name].append(time.process_time() - begun)
    first, second = (values[1:] for values in seconds.values())  # the first step allocates
    ratios = [other / one for one, other in zip(first, second, strict=True)]
    figures = {name: round(statistics.median(values[1:]), 3) for name, values in seconds.items()}
    spread = {
        "median": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
    }
    print(
        write_result("shards-step", "python benchmarks/shards_step.py", ["torch"], cpu_s_per_step=figures, ratio=spread)
    )


if __name__ == "__main__":
    main()
