"""A step on a CPU with one batch cut in as many shards as there are workers, each with a thread of its own.

Two cores that share every product wait for each other after each; two that take half the rows meet once a batch
(docs/log.md has the figures). Workers share the weights and have gradients of their own, which are added in a fixed
order, and draw dropout from generators seeded by the caller's: the result is a function of the number of workers.
Knows modules and gradients, nothing of text, batches or loss.
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

MOST = 4  # workers: a shard of a batch of 2,048 places should not become too small to be worth a thread


class Replicas(Generic[AnyModule]):
    """The model and its doubles: the same weights, other gradients."""

    def __init__(self, model: AnyModule, count: int) -> None:
        self.models = [model, *(_double(model) for _ in range(count - 1))]
        self.pool = ThreadPoolExecutor(max_workers=max(1, count - 1), thread_name_prefix="replica")

    def accumulate(self, shards: Sequence[Shard], backward: Callable[[AnyModule, Shard], Summed]) -> Summed:
        """Add every shard's gradient to the model's; the sum of what `backward` returned for each."""
        if len(self.models) == 1:
            return reduce(add, (backward(self.models[0], shard) for shard in shards))
        assert len(shards) <= len(self.models)
        threads = torch.get_num_threads()
        each = max(1, threads // len(self.models))
        seeds = torch.randint(1 << 62, (len(shards),)).tolist()

        def work(number: int) -> Summed:
            torch.set_num_threads(each)  # counts for the thread that calls it
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
        """Move the gradients of the doubles to the model, always in the same order."""
        first, *doubles = self.models
        for double in doubles:
            for parameter, other in zip(first.parameters(), double.parameters(), strict=True):
                if other.grad is not None and parameter.grad is not None:
                    parameter.grad += other.grad
                elif other.grad is not None:
                    parameter.grad = other.grad
                other.grad = None


def count_replicas(threads: int) -> int:
    """Workers for so many threads: the most that leave no thread over."""
    return max(count for count in range(1, MOST + 1) if threads % count == 0)


def _double(model: AnyModule) -> AnyModule:
    """A copy of the modules whose weights are the very same memory."""
    shared: dict[int, object] = {id(buffer): buffer for buffer in model.buffers()}
    shared |= {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(model, shared).train()
