"""The training state of a run with several shards: each process has the moments and the moving average of its own slices.

A checkpoint of it is the same as that of `transduce/training/state.py`, whatever the number of shards and processes. Knows no
files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from transduce.checkpoint import Checkpoint, Tensors
from transduce.config import TrainConfig
from transduce.errors import SettingError
from transduce.model import Model, has_running_statistics
from transduce.training.processes import Processes
from transduce.training.shards import Share
from transduce.training.sliced_optimizer import SlicedOptimizer
from transduce.training.state import TRAINED, TrainingState
from transduce.translator import load_weights


class ShardedState(TrainingState):
    """A model whose optimizer and moving average are divided among processes."""

    def __init__(self, model: Model, config: TrainConfig, share: Share, processes: Processes) -> None:
        if has_running_statistics(model):
            raise SettingError(
                f"model.family = {model.config.family}: a model with running statistics cannot be trained with "
                f"train.shards = {share.shards}; set train.shards=1"
            )
        self.sliced, self.processes = SlicedOptimizer(model, config, share), processes
        super().__init__(model, self.sliced, config.ema)  # type: ignore[arg-type]
        self.own_average: Tensor | None = None

    @torch.no_grad()
    def update_average(self) -> None:
        """Move the average of the own slices towards their weights, slice by slice."""
        if not self.decay:
            return
        if self.own_average is None:
            self.own_average = self.sliced.own_weights.clone()
        threads = torch.get_num_threads()
        if self.own_average.device.type == "cpu":
            torch.set_num_threads(1)
        for average, weights in zip(
            *map(self.sliced.own_slices, (self.own_average, self.sliced.own_weights)), strict=True
        ):
            average.lerp_(weights, 1 - self.decay)
        torch.set_num_threads(threads)

    def _collect_average(self) -> None:
        """Gather the moving average from all processes, before it is read."""
        if self.own_average is not None:
            views = self.sliced.slices.views(self.processes.whole(self.own_average))
            self.average = dict(zip(self.sliced.names, views, strict=True))

    @contextmanager
    def holding_kept(self) -> Iterator[None]:
        self._collect_average()
        with super().holding_kept():
            yield

    def checkpoint(self, progress: dict[str, Any]) -> Checkpoint:
        self._collect_average()
        trained = {TRAINED + name: tensor for name, tensor in self.trained.items()} if self.average else {}
        return Checkpoint(self.kept, self.sliced.tensors(self.processes.whole) | trained, progress)

    def restore(self, saved: Checkpoint) -> None:
        trained: Tensors = {
            name.removeprefix(TRAINED): t for name, t in saved.optimizer.items() if name.startswith(TRAINED)
        }
        load_weights(self.model, trained or saved.weights, "the checkpoint")
        self.sliced.load(saved.optimizer)
        if trained:
            kept = self.sliced.own_part([saved.weights[name] for name in self.sliced.names])
            self.own_average = kept.to(self.sliced.weights.device, copy=True)
            self._collect_average()
