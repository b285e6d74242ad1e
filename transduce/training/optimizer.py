"""Adam and AdamW over the model's named parameters, and their state as named tensors."""

import torch
from torch import Tensor, nn

from transduce.checkpoint import Tensors
from transduce.config import TrainConfig
from transduce.errors import DamagedFile

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Weight decay, where asked for, applies to matrices: not to biases, norms or embeddings."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "embedding" in name]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(
        [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=0.0,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
        capturable=next(model.parameters()).is_cuda,
    )


def optimizer_tensors(optimizer: torch.optim.Adam, model: nn.Module) -> Tensors:
    """`{"parameter.moment": tensor}`; empty before the first step."""
    return {
        f"{name}.{moment}": optimizer.state[parameter][moment]
        for name, parameter in model.named_parameters()
        for moment in MOMENTS
        if parameter in optimizer.state
    }


def load_optimizer(optimizer: torch.optim.Adam, model: nn.Module, tensors: Tensors) -> None:
    """Set the moments from what `optimizer_tensors` gave."""
    for name, parameter in model.named_parameters():
        if tensors:
            optimizer.state[parameter] = {m: _moment(tensors, name, m).to(parameter.device) for m in MOMENTS}


def _moment(tensors: Tensors, name: str, moment: str) -> Tensor:
    if f"{name}.{moment}" not in tensors:
        raise DamagedFile(f"the optimizer's state lacks {name}.{moment}")
    return tensors[f"{name}.{moment}"].clone()
