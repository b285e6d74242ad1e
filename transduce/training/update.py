"""One optimizer update: the gradients of some batches are summed, clipped and applied.

There are three implementations. `PlainUpdate` computes in the precision of the weights, on any device. `TwinUpdate` is for
GPUs: a copy of the model in bfloat16 computes the gradients, and the master weights stay in float32. `GraphedUpdate` does the
same, but captures each kernel sequence once as a CUDA graph and then replays it, so that the GPU never waits for Python,
nor Python for it.

Losses and gradient norms stay on the device until `measured` reads them. Knows no files, plans or schedules.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.config import TrainConfig
from transduce.data.batches import Batch
from transduce.device import Device, captured
from transduce.memory import keep_freed_memory
from transduce.model import Model, has_running_statistics, stored_tensors
from transduce.training.loss import batch_loss
from transduce.training.replicas import Replicas, count_replicas


@dataclass(frozen=True)
class Measured:
    """Figures of the updates since the last call of `measured`."""

    loss: float  # the minimised loss, summed over target tokens
    cross_entropy: float  # the same without label smoothing, as validation measures it
    gradient_norm: float  # of the last update
    finite: bool  # whether all losses and gradients were finite


class Update(Protocol):
    """The interface that the training loop uses."""

    def begin(self, seed: int) -> None:
        """Seed the dropout of the next step."""

    def add(self, batch: Any, tokens: int) -> None:
        """Add the gradient of a batch, divided by the number of target tokens in the step.

        With several shards, the batch is a list of shards that are computed at the same time.
        """

    def apply(self, learning_rate: float) -> None:
        """Clip the gradient and run the optimizer."""

    def forget(self) -> None:
        """Discard gradients that were added but not applied."""

    def measured(self) -> Measured:
        """Figures since the last call; waits for the device."""


class Statistics:
    """The running statistics of a model: a step that is not applied must leave them as they were."""

    def __init__(self, model: Model) -> None:
        parameters = {name for name, _ in model.named_parameters()}
        self.tensors = [tensor for name, tensor in stored_tensors(model).items() if name not in parameters]
        self.before: list[Tensor] = []

    def remember(self) -> None:
        """Before a batch; the first of a step counts."""
        self.before = self.before or [tensor.clone() for tensor in self.tensors]

    def accept(self) -> None:
        self.before = []

    def restore(self) -> None:
        for tensor, before in zip(self.tensors, self.before, strict=False):
            tensor.copy_(before)
        self.before = []


class PlainUpdate:
    """Runs operation by operation; on a CPU, the rows of a batch are divided among threads."""

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, config: TrainConfig, device: Device) -> None:
        self.model, self.optimizer, self.config, self.device = model, optimizer, config, device
        on_cpu = device.kind == "cpu"
        shares_rows = on_cpu and not has_running_statistics(model)
        self.replicas = Replicas(model, count_replicas(torch.get_num_threads()) if shares_rows else 1)
        if on_cpu:
            keep_freed_memory()
        self.statistics = Statistics(model)
        self.added = np.zeros(2)  # both losses of batches that are not applied yet
        self.losses, self.gradient_norm, self.finite = np.zeros(2), 0.0, True

    def begin(self, seed: int) -> None:
        torch.manual_seed(seed)

    def add(self, batch: Batch, tokens: int) -> None:
        self.model.train()
        self.statistics.remember()
        shares = batch.shares(len(self.replicas.models))
        self.added += self.replicas.accumulate(shares, lambda model, share: self._backward(model, share, tokens))

    def _backward(self, model: Model, batch: Batch, tokens: int) -> NDArray[np.float64]:
        with self.device.mixed_precision():
            loss = batch_loss(model, batch.to(self.device.torch), self.config.label_smoothing, self.config)
        (loss.minimised / tokens).backward()
        return np.array([float(loss.minimised.detach()), float(loss.cross_entropy)])

    def apply(self, learning_rate: float) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or math.inf)
        self.gradient_norm = float(norm)
        self.losses += self.added
        self.finite = self.finite and math.isfinite(self.gradient_norm) and math.isfinite(self.losses[0])
        if self.finite:  # a NaN or infinite gradient is never applied
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
            self.statistics.accept()
        self.forget()

    def forget(self) -> None:
        self.optimizer.zero_grad()
        self.statistics.restore()
        self.added = np.zeros(2)

    def measured(self) -> Measured:
        loss, cross_entropy = self.losses.tolist()
        seen = Measured(loss, cross_entropy, self.gradient_norm, self.finite)
        self.losses, self.finite = np.zeros(2), True
        return seen


class TwinUpdate:
    """Runs operation by operation in bfloat16: for models that need lengths on the host, such as those that pack rows."""

    ALIGNED = 64  # elements: the alignment of each weight's gradient in the vector of all gradients

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, config: TrainConfig, device: Device) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.twin = copy.deepcopy(model).to(torch.bfloat16).train()
        self.masters: list[Tensor] = list(model.parameters())
        self.workers: list[Tensor] = list(self.twin.parameters())
        self.gradient = torch.zeros(self._size(), device=device.torch)  # all gradients as one vector
        self.more = torch.zeros_like(self.gradient)  # the gradients of a batch after the first of a step
        for parameter, view in zip(self.masters, self._views(self.gradient), strict=True):
            parameter.grad = view
        number = lambda value: torch.tensor(value, device=device.torch)  # noqa: E731
        self.share, self.rate, self.added_losses = number(0.0), number(0.0), number([0.0, 0.0])
        self.losses, self.gradient_norm, self.finite = number([0.0, 0.0]), number(0.0), number(True)
        for group in optimizer.param_groups:
            group["lr"] = self.rate
        self.added = 0

    def begin(self, seed: int) -> None:
        torch.manual_seed(seed)

    def add(self, batch: Batch, tokens: int) -> None:
        self.share.fill_(1 / tokens)
        self._add(batch.to(self.rate.device), first=self.added == 0)
        self.added += 1

    def apply(self, learning_rate: float) -> None:
        self.rate.fill_(learning_rate)
        self._apply()
        self.added = 0

    def forget(self) -> None:
        self.added = 0

    def measured(self) -> Measured:
        loss, cross_entropy = self.losses.tolist()
        seen = Measured(loss, cross_entropy, float(self.gradient_norm), bool(self.finite))
        self.losses.zero_()
        self.finite.fill_(True)
        return seen

    def _add(self, batch: Batch, first: bool) -> None:
        loss = batch_loss(self.twin, batch, self.config.label_smoothing, self.config)
        (loss.minimised * self.share).backward()
        gradients = [p.grad for p in self.workers if p.grad is not None]
        torch._foreach_copy_(self._views(self.gradient if first else self.more), gradients)
        losses = torch.stack([loss.minimised.detach(), loss.cross_entropy])
        if first:
            self.added_losses.copy_(losses)
        else:
            self.added_losses += losses
            self.gradient += self.more
        for parameter in self.workers:
            parameter.grad = None

    @torch.no_grad()
    def _apply(self) -> None:
        norm = torch.linalg.vector_norm(self.gradient)
        if self.config.clip_norm:
            self.gradient *= (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        self.gradient_norm.copy_(norm)
        self.losses += self.added_losses
        self.finite.logical_and_(norm.isfinite() & self.losses[0].isfinite())
        self.optimizer.step()
        torch._foreach_copy_(self.workers, self.masters)

    def _size(self) -> int:
        """The elements of the vector of all gradients."""
        return sum(-(-p.numel() // self.ALIGNED) * self.ALIGNED for p in self.masters)

    def _views(self, vector: Tensor) -> list[Tensor]:
        """Views of one vector in the shapes of the weights."""
        views, begin = [], 0
        for parameter in self.masters:
            views.append(vector[begin : begin + parameter.numel()].view_as(parameter))
            begin += -(-parameter.numel() // self.ALIGNED) * self.ALIGNED
        return views


class GraphedUpdate(TwinUpdate):
    """Captures a CUDA graph once per batch shape, and then replays it."""

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, config: TrainConfig, device: Device) -> None:
        super().__init__(model, optimizer, config, device)
        self.pool = torch.cuda.graph_pool_handle()
        self.batches: dict[tuple[int, ...], Batch] = {}
        self.graphs: dict[tuple[int, ...], Callable[[], None]] = {}
        self.last: Callable[[], None] | None = None

    def add(self, batch: Batch, tokens: int) -> None:
        shape = batch.shape
        first = self.added == 0
        if shape not in self.batches:
            self.batches[shape] = batch.to(self.rate.device)
        if (*shape, first) not in self.graphs:
            static = self.batches[shape]
            self.graphs[(*shape, first)] = self._capture(lambda: self._add(static, first), warm=True)
        self.share.fill_(1 / tokens)
        self.batches[shape].copy_(batch)
        self.graphs[(*shape, first)]()
        self.added += 1

    def apply(self, learning_rate: float) -> None:
        if self.last is None:
            self.last = self._capture(self._apply, warm=False)
        self.rate.fill_(learning_rate)
        self.last()
        self.added = 0

    def _capture(self, run: Callable[[], None], warm: bool) -> Callable[[], None]:
        """Capture a graph without side effects: gradients, losses and the random state are restored afterwards."""
        kept = self.added_losses.clone(), self.gradient.clone(), torch.cuda.get_rng_state()
        replay = captured(run, warm, self.pool)
        self.added_losses.copy_(kept[0])
        self.gradient.copy_(kept[1])
        torch.cuda.set_rng_state(kept[2])
        return replay
