"""One optimizer update from shards on a GPU, as captured graphs; collectives run between them, where a time-out sees them.

The gradients of each shard are those of `transduce/training/update.py::GraphedUpdate`. The rest of a step is three graphs: the
norms of this process's slices, their update, and the copy of all weights to the model that computes. Knows no files, plans
or schedules.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from transduce.config import TrainConfig
from transduce.device import Device
from transduce.model import Model
from transduce.training.processes import Processes
from transduce.training.shards import Shard, Share, TreeSum, shard_seed
from transduce.training.sliced_optimizer import SlicedOptimizer
from transduce.training.update import GraphedUpdate


class ShardedGraphedUpdate(GraphedUpdate):
    """Replays a graph for each batch of a shard; shards run one after the other."""

    def __init__(
        self,
        model: Model,
        sliced: SlicedOptimizer,
        config: TrainConfig,
        device: Device,
        share: Share,
        processes: Processes,
        one_batch: bool = False,  # whether no shard has several batches
    ) -> None:
        self.sliced = sliced
        super().__init__(model, sliced, config, device)  # type: ignore[arg-type]
        # Such a gradient consists of bfloat16 numbers until others are added to it: half the bytes say the same.
        self.sends_bf16 = one_batch and len(share.own) == 1
        self.shards, self.processes, self.seed = share, processes, 0
        for parameter in self.masters:
            parameter.grad = None  # the optimizer has the gradients of its slices
        self.gradient = torch.zeros_like(sliced.weights)  # of the current shard
        self.more = torch.zeros_like(sliced.weights)
        self.tree = TreeSum(lambda: torch.zeros_like(sliced.weights))
        # Both losses of each own shard and the squared norm of the slice of the same number; then those of all processes.
        self.figures = torch.zeros(len(share.own), 3, dtype=torch.float64, device=sliced.weights.device)
        self.all_figures = torch.zeros(share.shards, 3, dtype=torch.float64, device=sliced.weights.device)
        self.stages: dict[str, Callable[[], None]] = {}

    def begin(self, seed: int) -> None:
        self.seed = seed

    def add(self, batch: list[Shard], tokens: int) -> None:  # type: ignore[override]
        for shard in batch:
            torch.manual_seed(shard_seed(self.seed, shard.number))
            self.added = 0
            for one in shard.batches:
                super().add(one, tokens)
            self._keep(shard)

    @torch.no_grad()
    def _keep(self, shard: Shard) -> None:
        """Add the gradient of a shard to the sum; one without batches counts as zeros."""
        if not shard.batches:
            self.gradient.zero_()
            self.added_losses.zero_()
        self.figures[shard.number - self.shards.own.start, :2] = self.added_losses
        if len(self.shards.own) > 1:
            vector = self.tree.vector()
            vector.copy_(self.gradient)
            self.tree.add(vector)

    def apply(self, learning_rate: float) -> None:
        self.rate.fill_(learning_rate)
        total = self._total()
        self.processes.add_slices(total.bfloat16() if self.sends_bf16 else total, self.sliced.gradient)
        self._replay("norms", self._measure_slices)
        self.all_figures.copy_(self.processes.all_rows(self.figures))
        self._replay("update", self._update_slices)
        self.processes.gather_slices(self.sliced.weights)
        self._replay("copy", lambda: torch._foreach_copy_(self.workers, self.masters))
        self.forget()

    def forget(self) -> None:
        super().forget()
        self.tree.clear()

    def _total(self) -> Tensor:
        return self.tree.total() if len(self.shards.own) > 1 else self.gradient

    def _replay(self, stage: str, run: Callable[[], None]) -> None:
        if stage not in self.stages:
            self.stages[stage] = self._capture(torch.no_grad()(run), warm=False)
        self.stages[stage]()

    def _measure_slices(self) -> None:
        """Each slice is a tensor of its own: how a sum is divided on a GPU may depend on the shape."""
        for number, part in enumerate(self.sliced.own_slices(self.sliced.gradient)):
            self.figures[number, 2] = torch.linalg.vector_norm(part).double().square()

    def _update_slices(self) -> None:
        norm = self.all_figures[:, 2].sum().sqrt()
        if self.config.clip_norm:
            self.sliced.gradient *= (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0).float()
        self.gradient_norm.copy_(norm)
        self.losses += self.all_figures[:, :2].sum(0).float()
        self.finite.logical_and_(norm.isfinite() & self.losses[0].isfinite())
        for number in range(len(self.shards.own)):
            self.sliced.step(number)

    def _size(self) -> int:
        return self.sliced.slices.size

    def _views(self, vector: Tensor) -> list[Tensor]:
        return self.sliced.slices.views(vector)
