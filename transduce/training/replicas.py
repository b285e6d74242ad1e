"""A training step on a CPU: a batch is split into one shard per worker, and each worker has its own thread.

Two cores that share every matrix product wait for each other after each; two that take half the rows each synchronise
once per batch (docs/log.md has the figures). Workers share the weights but have their own gradients, which are added in a
fixed order. They sample dropout from generators seeded by the caller's, so the result depends only on the number of
workers. Knows modules and gradients, but no text, batches or loss.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import reduce
from operator import add
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from transduce.model.dropout import dropout_generator

AnyModule = TypeVar("AnyModule", bound=nn.Module)
Shard = TypeVar("Shard")
Summed = TypeVar("Summed", float, NDArray[np.float64])

MOST = 4  # workers: smaller shards of a batch of 2,048 positions would not be worth a thread


class Replicas(Generic[AnyModule]):
    """The model and its replicas, which share its weights but have their own gradients."""

    def __init__(self, model: AnyModule, count: int) -> None:
        self.models = [model, *(make_replica(model) for _ in range(count - 1))]
        self.pool = ThreadPoolExecutor(max_workers=max(1, count - 1), thread_name_prefix="replica")

    def accumulate(self, shards: Sequence[Shard], backward: Callable[[AnyModule, Shard], Summed]) -> Summed:
        """Add the gradients of all shards to the model's, and return the sum of the results of `backward`."""
        if len(self.models) == 1:
            return reduce(add, (backward(self.models[0], shard) for shard in shards))
        assert len(shards) <= len(self.models)
        threads = torch.get_num_threads()
        each = max(1, threads // len(self.models))
        seeds = torch.randint(1 << 62, (len(shards),)).tolist()

        def work(number: int) -> Summed:
            torch.set_num_threads(each)  # applies to the calling thread only
            with dropout_generator(torch.Generator().manual_seed(seeds[number])):
                return backward(self.models[number], shards[number])

        others = [self.pool.submit(work, number) for number in range(1, len(shards))]
        try:
            loss = work(0)
        finally:
            wait(others)
            torch.set_num_threads(threads)
            self._collect()
        return reduce(add, (other.result() for other in others), loss)

    @torch.no_grad()
    def _collect(self) -> None:
        """Add the gradients of the replicas to the model's, always in the same order."""
        first, *replicas = self.models
        for replica in replicas:
            for parameter, other in zip(first.parameters(), replica.parameters(), strict=True):
                if other.grad is not None and parameter.grad is not None:
                    parameter.grad += other.grad
                elif other.grad is not None:
                    parameter.grad = other.grad
                other.grad = None


def count_replicas(threads: int) -> int:
    """The largest number of workers, up to `MOST`, that divides the number of threads."""
    return max(count for count in range(1, MOST + 1) if threads % count == 0)


def make_replica(model: AnyModule) -> AnyModule:
    """A copy of the modules that shares the memory of the weights."""
    shared: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    shared |= {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, shared).train()
