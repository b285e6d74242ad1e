"""The optimizer that the settings choose, and the state of any optimizer as named tensors.

State is allocated here, on the parameters' device and before the first step, and a step never waits for the host. So a
step can be captured in a CUDA graph; the learning rate in `param_groups` is then a tensor that is filled before each replay.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam, AdamW, Optimizer

from transduce.checkpoint import Tensors
from transduce.config import TrainConfig
from transduce.errors import DamagedFile
from transduce.model import Model
from transduce.training.muon import Muon


def make_optimizer(model: Model, config: TrainConfig) -> Optimizer:
    """Make the optimizer; weight decay, if set, applies to matrices but not to biases, norms or embeddings."""
    named = dict(model.named_parameters())
    if config.optimizer == "muon":
        matrices = model.matrices()
        rest = {name: parameter for name, parameter in named.items() if parameter not in matrices}
        return Muon(matrices, config.weight_decay, _adam(AdamW, rest, config))
    return _adam(AdamW if config.optimizer == "adamw" else Adam, named, config)


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> Tensors:
    """`{"parameter.moment": tensor}`, not copied; state that belongs to no parameter keeps its own name."""
    names: dict[Any, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names.get(owner, owner)}.{moment}": tensor
        for owner, moments in optimizer.state.items()
        for moment, tensor in moments.items()
    }


def load_optimizer(optimizer: Optimizer, model: nn.Module, tensors: Tensors) -> None:
    """Copy the tensors of `optimizer_tensors` into the state, in place."""
    for name, tensor in optimizer_tensors(optimizer, model).items():
        if name not in tensors:
            raise DamagedFile(f"the optimizer's state lacks {name}")
        if tensors[name].shape != tensor.shape:
            raise DamagedFile(f"the optimizer's state has {name} in another shape")
        tensor.copy_(tensors[name])


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies to this weight."""
    return parameter.dim() == 2 and "embedding" not in name


def _groups(named: dict[str, Parameter], config: TrainConfig) -> list[dict[str, Any]]:
    decayed = {name for name, parameter in named.items() if is_decayed(name, parameter)}
    return [
        {"params": [p for name, p in named.items() if name in decayed], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named.items() if name not in decayed], "weight_decay": 0.0},
    ]


def make_adam(kind: type[Adam], groups: list[dict[str, Any]], config: TrainConfig, capturable: bool) -> Adam:
    """Torch's fused Adam, without state."""
    optimizer = kind(
        groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True, capturable=capturable
    )
    # Torch warns that a capturable optimizer is slow outside a graph; the fused one is not.
    optimizer._warned_capturable_if_run_uncaptured = True
    return optimizer


def _adam(kind: type[Adam], named: dict[str, Parameter], config: TrainConfig) -> Adam:
    """Torch's Adam, with its state allocated now instead of in the first step."""
    on_gpu = any(parameter.is_cuda for parameter in named.values())
    optimizer = make_adam(kind, _groups(named, config), config, capturable=on_gpu)
    for parameter in named.values():
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer
