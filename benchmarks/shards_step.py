"""What a step costs on a CPU when it is cut into shards: CPU seconds, which other programs on the machine hardly change.

    python benchmarks/shards_step.py

Takes turns between the threaded step of runs with one shard (rows divided among threads) and steps of four shards, on the same
padded batches. Then two processes of one thread each take the same steps, connected by gloo; their CPU seconds are added. Writes
benchmarks/results/shards-step.json.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np
import torch
from facts import write_result
from torch.distributed import FileStore

from transduce.config import TrainConfig, TransformerConfig
from transduce.data.batches import Batch, Batching, make_batch
from transduce.device import choose_device
from transduce.model import Transformer
from transduce.training.joined import Joined
from transduce.training.optimizer import make_optimizer
from transduce.training.processes import Alone, Processes
from transduce.training.rendezvous import Launch
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


def sharded(
    threads: int = THREADS, share: Share | None = None, processes: Processes | None = None
) -> Callable[[list], None]:
    torch.manual_seed(1)
    model, train = Transformer(MODEL, SIZE, SIZE), TrainConfig(shards=SHARDS)
    share, processes = share or Share(SHARDS, at_once=threads), processes or Alone()
    sliced = ShardedState(model, train, share, processes).sliced
    update = ShardedUpdate(model, sliced, train, choose_device("cpu", "fp32", threads), share, processes)

    def step(planned: list) -> None:
        update.begin(1)
        for group in share.work(BATCHING, planned, make):
            update.add(group, 4_096)
        update.apply(1e-4)

    return step


def seconds_of(run: Callable[[list], None], planned: list) -> float:
    begun = time.process_time()
    run(planned)
    return time.process_time() - begun


def one_of_two(number: int, store_file: str, results: Connection) -> None:
    """Take the steps as one of two processes, and send the CPU seconds of each."""
    launch, store = Launch(number, 2, number, 2), FileStore(store_file, 2)
    joined = Joined(store, launch, 2, "gloo", 120.0)
    run, steps = sharded(1, Share(SHARDS, number, 2), joined), BATCHING.plan(PAIRS, 0)[:ROUNDS]
    results.send([seconds_of(run, step) for step in [steps[0], *steps]])
    joined.close()


def by_processes() -> list[float]:
    """The CPU seconds of each step, over both processes."""
    context, found = get_context("spawn"), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=one_of_two, args=(number, f"{folder}/store", send))
            process.start()
            found.append((process, receive))
        seconds = [receive.recv() for _, receive in found]
        for process, _ in found:
            process.join()
    return [sum(both) for both in zip(*seconds, strict=True)]


def main() -> None:
    ways = {"one shard, rows divided among two threads": plain(), "four shards on two threads": sharded()}
    steps = BATCHING.plan(PAIRS, 0)[:ROUNDS]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for step in [steps[0], *steps]:
        for name, run in ways.items():
            seconds[name].append(seconds_of(run, step))
    seconds["four shards on two processes of one thread"] = by_processes()
    seconds = {name: values[1:] for name, values in seconds.items()}  # the first step allocates
    first, *others = seconds
    figures = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    ratios = {name: spread(seconds[name], seconds[first]) for name in others}
    command = "python benchmarks/shards_step.py"
    print(write_result("shards-step", command, ["torch"], cpu_s_per_step=figures, ratio=ratios))


def spread(values: list[float], beside: list[float]) -> dict[str, float]:
    ratios = [one / other for one, other in zip(values, beside, strict=True)]
    return {
        "median": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
    }


if __name__ == "__main__":
    main()
