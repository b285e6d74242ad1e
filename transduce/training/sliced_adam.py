"""Adam on slices of the vector of all weights: each process updates the slices it owns, each slice by itself.

Its state is saved under the names and shapes of the weights, as that of torch's Adam is, so a checkpoint does not depend on
the number of slices or processes. Knows the model's weights, but no gradients' origin and no files.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW

from transduce.checkpoint import Tensors
from transduce.config import TrainConfig
from transduce.errors import DamagedFile
from transduce.training.optimizer import is_decayed, make_adam
from transduce.training.shards import Run, Share, Slices

MOMENTS = ("exp_avg", "exp_avg_sq")
Whole = Callable[[Tensor], Tensor]  # the own slices -> those of all processes


class SlicedAdam:
    """One Adam per slice; the weights of the model become views of one vector."""

    def __init__(self, model: nn.Module, config: TrainConfig, share: Share) -> None:
        named = dict(model.named_parameters())
        self.names, parameters = list(named), list(named.values())
        # Without decay, a slice need not be cut where the kind of weight changes.
        decayed = tuple(bool(config.weight_decay) and is_decayed(name, one) for name, one in named.items())
        self.slices = Slices(tuple(one.shape for one in parameters), decayed, share.shards)
        self.own, self.kind = share.own, AdamW if config.optimizer == "adamw" else Adam
        self.weights = torch.zeros(self.slices.size, device=parameters[0].device)
        with torch.no_grad():
            for parameter, view in zip(parameters, self.slices.views(self.weights), strict=True):
                view.copy_(parameter)
                parameter.data = view
        self.gradient = torch.zeros(len(self.own) * self.slices.length, device=self.weights.device)
        self.moments = {name: torch.zeros_like(self.gradient) for name in MOMENTS}
        self.optimizers = [self._of_slice(number, config) for number in self.own]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def own_weights(self) -> Tensor:
        return self._own(self.weights)

    def own_slices(self, vector: Tensor) -> list[Tensor]:
        """A vector of this process's slices, cut into them."""
        return list(vector.split(self.slices.length))

    def tensors(self, whole: Whole) -> Tensors:
        """`{"weight.moment": tensor}` of all processes; `whole` gathers their slices."""
        (step, *_) = [state["step"] for optimizer in self.optimizers for state in optimizer.state.values()]
        found = {f"{name}.step": step for name in self.names}
        for moment, own in self.moments.items():
            views = self.slices.views(whole(own))
            found |= {f"{name}.{moment}": view for name, view in zip(self.names, views, strict=True)}
        return found

    def load(self, tensors: Tensors) -> None:
        """Copy this process's part of a checkpoint into the state."""
        for moment, own in self.moments.items():
            own.copy_(self.own_part([_found(tensors, f"{name}.{moment}") for name in self.names]))
        step = _found(tensors, f"{self.names[0]}.step")
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                state["step"].copy_(step)

    def own_part(self, tensors: list[Tensor]) -> Tensor:
        """This process's slices of the vector that these tensors of the weights' shapes make up."""
        vector = torch.zeros(self.slices.size)
        for view, tensor in zip(self.slices.views(vector), tensors, strict=True):
            if view.shape != tensor.shape:
                raise DamagedFile("the optimizer's state has tensors of another shape than the weights")
            view.copy_(tensor)
        return self._own(vector)

    def _own(self, vector: Tensor) -> Tensor:
        return vector[self.own.start * self.slices.length : self.own.stop * self.slices.length]

    def _of_slice(self, number: int, config: TrainConfig) -> Adam:
        begin = self.own.start * self.slices.length
        groups: list[dict[str, Any]] = []
        states = []
        for run in self.slices.runs(number):
            parameter = nn.Parameter(self.weights[run.begin : run.end])
            parameter.grad = self.gradient[run.begin - begin : run.end - begin]
            groups.append({"params": [parameter], "weight_decay": config.weight_decay if run.decayed else 0.0})
            states.append(self._state(run, begin))
        optimizer = make_adam(self.kind, groups, config, capturable=self.weights.is_cuda)
        for group, state in zip(groups, states, strict=True):
            optimizer.state[group["params"][0]] = state
        return optimizer

    def _state(self, run: Run, begin: int) -> dict[str, Tensor]:
        views = {name: moment[run.begin - begin : run.end - begin] for name, moment in self.moments.items()}
        return {"step": torch.zeros((), dtype=torch.float32, device=self.weights.device), **views}


def _found(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise DamagedFile(f"the optimizer's state lacks {name}")
    return tensors[name]
