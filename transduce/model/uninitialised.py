"""Models whose weights are not initialised, for loading a checkpoint or for finding out the shapes of its tensors.

Sampling the initial weights of a base model takes most of a second. PyTorch's own way to build a model without memory, its
meta device, would import its compiler here, which takes seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transduce.config import ModelConfig
from transduce.model.families import make_model
from transduce.model.model import Model, stored_tensors

INITIALISERS = {
    nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_uniform_,
    Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_,
}  # fmt: skip


class _SkipInitialisation(TorchFunctionMode):
    """Skips the initialisation of tensors: they keep whatever their memory holds."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if function in INITIALISERS:
            return args[0] if args else named["tensor"]
        return self.call(function, args, named)

    def call(self, function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
        return function(*args, **named)


class _ShapesOnly(_SkipInitialisation):
    """Allocates no memory for parameters, and a single row for tables of positions."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
        if function is torch.empty:
            return function(*args, **named | {"device": "meta"})
        made = function(*args, **named)
        return made[:1] if function is torch.arange and len(args) == 1 else made


def uninitialised_model(config: ModelConfig, source_size: int, target_size: int) -> Model:
    """A model whose parameters hold arbitrary values until a checkpoint is loaded."""
    with _SkipInitialisation():
        return make_model(config, source_size, target_size)


def parameter_shapes(config: ModelConfig, source_size: int, target_size: int) -> dict[str, torch.Size]:
    """The name and shape of every tensor in the model's checkpoints, without allocating them."""
    with _ShapesOnly():
        model = make_model(config, source_size, target_size)
    return {name: tensor.shape for name, tensor in stored_tensors(model).items()}
