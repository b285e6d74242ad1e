"""The training state: the tensors of a model, the state of its optimizer and the moving average of its weights.

The kept weights are the moving average if `train.ema` is set, and otherwise the trained weights. Validation and all files
of weights use the kept weights. With a moving average, the trained weights are saved with the optimizer's state, so that
training can resume. Tensors are parameters and persistent buffers, such as the running statistics of BatchNorm. Knows no
files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from transduce.checkpoint import Checkpoint, Tensors
from transduce.config import TrainConfig
from transduce.model import Model, stored_tensors
from transduce.training.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from transduce.translator import load_weights

TRAINED = "trained."  # prefix of the trained weights among the optimizer's tensors


class TrainingState:
    """A model in training, with everything that must be saved to resume it."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, decay: float = 0.0) -> None:
        self.model, self.optimizer = model, optimizer
        self.decay = decay  # of the moving average; 0: no average
        self.average: Tensors = {}

    @staticmethod
    def of(model: Model, config: TrainConfig) -> "TrainingState":
        return TrainingState(model, make_optimizer(model, config), config.ema)

    @property
    def trained(self) -> Tensors:
        """The parameters and persistent buffers of the model itself."""
        return {name: tensor.detach() for name, tensor in stored_tensors(self.model).items()}

    @property
    def kept(self) -> Tensors:
        """The weights to validate and to write."""
        return self.average or self.trained

    @property
    def is_finite(self) -> bool:
        return all(bool(tensor.isfinite().all()) for tensor in self.trained.values())

    @torch.no_grad()
    def update_average(self) -> None:
        """Move the average towards the trained weights; integers, such as counters of batches, are copied."""
        if not self.decay:
            return
        trained = self.trained
        if not self.average:
            self.average = {name: tensor.clone() for name, tensor in trained.items()}
        numbers = [name for name, tensor in trained.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.average[n] for n in numbers], [trained[n] for n in numbers], 1 - self.decay)
        for name in trained.keys() - set(numbers):
            self.average[name].copy_(trained[name])

    @contextmanager
    def holding_kept(self) -> Iterator[None]:
        """Load the kept weights into the model inside this context, and restore its trained weights afterwards."""
        if not self.average:
            yield
            return
        own = {name: tensor.clone() for name, tensor in self.trained.items()}
        load_weights(self.model, self.average, "the moving average")
        try:
            yield
        finally:
            load_weights(self.model, own, "the trained weights")

    def checkpoint(self, progress: dict[str, Any]) -> Checkpoint:
        """Everything that `restore` needs; the tensors are those of this state, not copies."""
        trained = {TRAINED + name: tensor for name, tensor in self.trained.items()} if self.average else {}
        return Checkpoint(self.kept, optimizer_tensors(self.optimizer, self.model) | trained, progress)

    def restore(self, saved: Checkpoint) -> None:
        """Copy a checkpoint into the model, the optimizer and the moving average."""
        trained = {name.removeprefix(TRAINED): t for name, t in saved.optimizer.items() if name.startswith(TRAINED)}
        load_weights(self.model, trained or saved.weights, "the checkpoint")
        own = self.trained.items() if trained else ()
        self.average = {name: saved.weights[name].to(tensor.device) for name, tensor in own}
        load_optimizer(self.optimizer, self.model, saved.optimizer)
