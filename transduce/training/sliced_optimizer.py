"""The optimizer on slices of the vector of all weights: each process updates the slices it owns, each slice by itself.

Adam updates any element of a slice. Muon updates whole matrices, so with Muon every matrix lies within one slice. State is
saved under the names and shapes of the weights, as that of torch's optimizers is, so a checkpoint does not depend on the number
of slices or processes. Knows the model's weights, but no gradients' origin and no files.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from transduce.checkpoint import Tensors
from transduce.config import TrainConfig
from transduce.errors import DamagedFile
from transduce.model import Model
from transduce.training.muon import Muon
from transduce.training.optimizer import is_decayed, make_adam
from transduce.training.shards import Run, Share, Slices

MOMENTS = ("exp_avg", "exp_avg_sq")
MOMENTUM = "exp_avg"  # the vector whose part for matrices is Muon's momentum; the other one is unused there
Whole = Callable[[Tensor], Tensor]  # the own slices -> those of all processes


class SlicedOptimizer:
    """One optimizer, or one for matrices and one for the rest, per slice; the weights of the model become views of one vector."""

    def __init__(self, model: Model, config: TrainConfig, share: Share) -> None:
        named, matrices = dict(model.named_parameters()), model.matrices() if config.optimizer == "muon" else {}
        self.names, parameters, self.config = list(named), list(named.values()), config
        self.heights = [matrices.get(parameter, []) for parameter in parameters]  # of matrices that Muon updates
        # Without decay, a slice need not be cut where the kind of weight changes.
        decayed = tuple(bool(config.weight_decay) and is_decayed(name, one) for name, one in named.items())
        shapes, whole = tuple(one.shape for one in parameters), tuple(map(bool, self.heights))
        self.slices, self.own = Slices(shapes, decayed, share.shards, whole), share.own
        self.weights = torch.zeros(self.slices.size, device=parameters[0].device)
        with torch.no_grad():
            for parameter, view in zip(parameters, self.slices.views(self.weights), strict=True):
                view.copy_(parameter)
                parameter.data = view
        self.gradient = torch.zeros(len(self.own) * self.slices.length, device=self.weights.device)
        self.moments = {name: torch.zeros_like(self.gradient) for name in MOMENTS}
        self.optimizers = [[*self._adam_of(number), *self._muon_of(number)] for number in self.own]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizers in self.optimizers for one in optimizers for group in one.param_groups]

    def step(self, number: int) -> None:
        """Update the own slice of this number."""
        for optimizer in self.optimizers[number]:
            optimizer.step()

    @property
    def own_weights(self) -> Tensor:
        return self._own(self.weights)

    def own_slices(self, vector: Tensor) -> list[Tensor]:
        """A vector of this process's slices, cut into them."""
        return list(vector.split(self.slices.length))

    def tensors(self, whole: Whole) -> Tensors:
        """`{"weight.moment": tensor}` of all processes; `whole` gathers their slices."""
        found: Tensors = {f"{name}.step": self._step for name, heights in self._named_heights() if not heights}
        for vector, own in self.moments.items():
            views = self.slices.views(whole(own))
            for name, view in zip(self.names, views, strict=True):
                if moment := self._moment(name, vector):
                    found[f"{name}.{moment}"] = view
        return found

    def load(self, tensors: Tensors) -> None:
        """Copy this process's part of a checkpoint into the state."""
        for vector, own in self.moments.items():
            found = [self._saved(tensors, name, vector, shape) for name, shape in self._named_shapes()]
            own.copy_(self.own_part(found))
        first = next(name for name, heights in self._named_heights() if not heights)
        step = _found(tensors, f"{first}.step")
        for counter in self._steps():
            counter.copy_(step)

    def own_part(self, tensors: list[Tensor]) -> Tensor:
        """This process's slices of the vector that these tensors of the weights' shapes make up."""
        vector = torch.zeros(self.slices.size)
        for view, tensor in zip(self.slices.views(vector), tensors, strict=True):
            if view.shape != tensor.shape:
                raise DamagedFile("the optimizer's state has tensors of another shape than the weights")
            view.copy_(tensor)
        return self._own(vector)

    # --- names in a checkpoint -------------------------------------------------------------------------------------

    def _named_heights(self) -> list[tuple[str, list[int]]]:
        return list(zip(self.names, self.heights, strict=True))

    def _named_shapes(self) -> list[tuple[str, torch.Size]]:
        return list(zip(self.names, self.slices.shapes, strict=True))

    def _moment(self, name: str, vector: str) -> str:
        """What a vector of moments has for a weight; "" if it has nothing."""
        if not self.heights[self.names.index(name)]:
            return vector
        return "momentum" if vector == MOMENTUM else ""

    def _saved(self, tensors: Tensors, name: str, vector: str, shape: torch.Size) -> Tensor:
        moment = self._moment(name, vector)
        return _found(tensors, f"{name}.{moment}") if moment else torch.zeros(shape)

    @property
    def _step(self) -> Tensor:
        """How many updates Adam has made; a process that owns only matrices does not count them, and writes no files."""
        return next(iter(self._steps()), torch.zeros(()))

    def _steps(self) -> list[Tensor]:
        states = [state for optimizers in self.optimizers for one in optimizers for state in one.state.values()]
        return [state["step"] for state in states if "step" in state]

    # --- slices ------------------------------------------------------------------------------------------------------

    def _own(self, vector: Tensor) -> Tensor:
        return vector[self.own.start * self.slices.length : self.own.stop * self.slices.length]

    @property
    def _first(self) -> int:
        """The element at which the own slices begin."""
        return self.own.start * self.slices.length

    def _adam_of(self, number: int) -> list[Optimizer]:
        """Adam for the elements of a slice that do not belong to Muon's matrices, if there are any."""
        runs = list(self.slices.runs(number))
        if not runs:
            return []
        parameters = [self._parameter(run.begin, torch.Size([run.end - run.begin])) for run in runs]
        decay = self.config.weight_decay
        groups: list[dict[str, Any]] = [
            {"params": [parameter], "weight_decay": decay if run.decayed else 0.0}
            for parameter, run in zip(parameters, runs, strict=True)
        ]
        kind = Adam if self.config.optimizer == "adam" else AdamW
        optimizer = make_adam(kind, groups, self.config, capturable=self.weights.is_cuda)
        for parameter, run in zip(parameters, runs, strict=True):
            optimizer.state[parameter] = self._state(run)
        return [optimizer]

    def _muon_of(self, number: int) -> list[Optimizer]:
        """Muon for the matrices of a slice, if there are any. Which are stacked to be multiplied depends on the slice alone."""
        weights = self.slices.whole_weights(number)
        if not weights:
            return []
        places = [(self.slices.begins[weight], self.slices.shapes[weight]) for weight in weights]
        parameters: list[Tensor] = [self._parameter(*place) for place in places]
        heights = [self.heights[weight] for weight in weights]
        optimizer = Muon(dict(zip(parameters, heights, strict=True)), self.config.weight_decay)
        for parameter, place in zip(parameters, places, strict=True):
            optimizer.state[parameter] = {"momentum": self._part(self.moments[MOMENTUM], *place)}
        return [optimizer]

    def _parameter(self, begin: int, shape: torch.Size) -> nn.Parameter:
        """A part of the own slices, with its gradient."""
        parameter = nn.Parameter(self.weights[begin : begin + shape.numel()].view(shape))
        parameter.grad = self._part(self.gradient, begin, shape)
        return parameter

    def _part(self, own: Tensor, begin: int, shape: torch.Size) -> Tensor:
        """A part of a vector that has only the own slices."""
        return own[begin - self._first : begin - self._first + shape.numel()].view(shape)

    def _state(self, run: Run) -> dict[str, Tensor]:
        shape = torch.Size([run.end - run.begin])
        views = {name: self._part(moment, run.begin, shape) for name, moment in self.moments.items()}
        return {"step": torch.zeros((), dtype=torch.float32, device=self.weights.device), **views}


def _found(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise DamagedFile(f"the optimizer's state lacks {name}")
    return tensors[name]
