"""One optimizer update from shards: this process's gradients, the sum over all processes, and the update of its slices.

Same interface as `transduce/training/update.py`. On a CPU each shard runs on one thread, several shards at a time, so that
neither the number of threads nor of processes changes the result. Knows no files, plans or schedules.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from transduce.config import TrainConfig
from transduce.device import Device
from transduce.memory import keep_freed_memory
from transduce.model import Model
from transduce.model.dropout import dropout_generator
from transduce.training.loss import batch_loss
from transduce.training.processes import Processes
from transduce.training.replicas import make_replica
from transduce.training.shards import Shard, Share, TreeSum, shard_seed
from transduce.training.sliced_optimizer import SlicedOptimizer
from transduce.training.update import Measured

T = TypeVar("T")


class OneThreadEach:
    """Runs work on several threads, each of which computes alone: a result does not depend on how many there are."""

    def __init__(self, count: int) -> None:
        self.pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="shard")

    def map(self, work: Callable[..., T], *items: Any) -> list[T]:
        threads = torch.get_num_threads()

        def alone(*arguments: Any) -> T:
            torch.set_num_threads(1)  # applies to the calling thread only
            return work(*arguments)

        try:
            return list(self.pool.map(alone, *items))
        finally:
            torch.set_num_threads(threads)  # what threads that begin later use


class InTurn:
    """Runs work in the calling thread, for a GPU."""

    def map(self, work: Callable[..., T], *items: Any) -> list[T]:
        return [work(*arguments) for arguments in zip(*items, strict=False)]


class ShardedUpdate:
    """Runs operation by operation, on any device."""

    def __init__(
        self,
        model: Model,
        sliced: SlicedOptimizer,
        config: TrainConfig,
        device: Device,
        share: Share,
        processes: Processes,
    ) -> None:
        self.model, self.sliced, self.config, self.device = model, sliced, config, device
        self.shards, self.processes = share, processes
        on_cpu = device.kind == "cpu"
        self.workers: OneThreadEach | InTurn = OneThreadEach(share.at_once) if on_cpu else InTurn()
        self.replicas = [make_replica(model) for _ in range(share.at_once)]
        if on_cpu:
            keep_freed_memory()
        self.tree = TreeSum(lambda: torch.zeros_like(sliced.weights))
        self.seed = 0
        self.added: list[Tensor] = []  # both losses of each own shard that is not applied yet
        self.losses, self.gradient_norm, self.finite = np.zeros(2), 0.0, True

    def begin(self, seed: int) -> None:
        self.seed = seed

    def add(self, batch: list[Shard], tokens: int) -> None:
        """Add the gradients of shards that are computed at the same time."""
        vectors = [self.tree.vector() for _ in batch]
        losses = self.workers.map(
            lambda model, shard, vector: self._gradient(model, shard, vector, tokens), self.replicas, batch, vectors
        )
        for vector in vectors:
            self.tree.add(vector)
        self.added += losses

    def _gradient(self, model: Model, shard: Shard, vector: Tensor, tokens: int) -> Tensor:
        """Write the gradient of a shard into the vector; its two losses."""
        seed, losses = shard_seed(self.seed, shard.number), torch.zeros(2, dtype=torch.float64)
        if self.device.kind != "cpu":
            torch.manual_seed(seed)
        with dropout_generator(torch.Generator().manual_seed(seed)):
            for batch in shard.batches:
                with self.device.mixed_precision():
                    loss = batch_loss(model, batch.to(self.device.torch), self.config.label_smoothing, self.config)
                (loss.minimised / tokens).backward()
                losses += torch.stack([loss.minimised.detach(), loss.cross_entropy]).cpu()
        self._take_gradients(model, vector)
        return losses

    @torch.no_grad()
    def _take_gradients(self, model: Model, vector: Tensor) -> None:
        for parameter, view in zip(model.parameters(), self.sliced.slices.views(vector), strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
            parameter.grad = None

    @torch.no_grad()
    def apply(self, learning_rate: float) -> None:
        self.processes.add_slices(self.tree.total(), self.sliced.gradient)
        figures = self.processes.all_rows(self._figures())  # [shards, 3]
        self.losses += figures[:, :2].sum(0).numpy()
        self.gradient_norm = float(figures[:, 2].sum().sqrt())
        self.finite = self.finite and math.isfinite(self.gradient_norm) and math.isfinite(self.losses[0])
        if self.finite:  # a NaN or infinite gradient is never applied
            for group in self.sliced.param_groups:
                group["lr"] = learning_rate
            self.workers.map(self._update_slice, range(len(self.shards.own)))
            self.processes.gather_slices(self.sliced.weights)
        self.forget()

    def _figures(self) -> Tensor:
        """Both losses of each own shard and the squared norm of the slice of the same number."""
        slices = self.sliced.own_slices(self.sliced.gradient)
        squares = self.workers.map(lambda part: torch.linalg.vector_norm(part).double().square().cpu(), slices)
        return torch.cat([torch.stack(self.added), torch.stack(squares)[:, None]], dim=1)

    def _update_slice(self, number: int) -> None:
        """Clip the gradient of a slice and update its weights."""
        with torch.no_grad():
            if self.config.clip_norm:
                scale = min(1.0, self.config.clip_norm / (self.gradient_norm + 1e-6))
                self.sliced.own_slices(self.sliced.gradient)[number] *= scale
            self.sliced.step(number)

    def forget(self) -> None:
        self.tree.clear()
        self.added = []

    def measured(self) -> Measured:
        loss, cross_entropy = self.losses.tolist()
        seen = Measured(loss, cross_entropy, self.gradient_norm, self.finite)
        self.losses, self.finite = np.zeros(2), True
        return seen
