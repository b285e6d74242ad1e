"""Schedule-Free AdamW (Defazio et al. 2024): averaging takes the place of a falling learning rate.

Three sequences: z takes the steps, x is its weighted average and the answer, and the gradient is taken between them, at
y = (1 - beta) z + beta x. The model's parameters hold y; `answer` gives x, which is what to measure and to keep.
Differs from the paper: Adam follows a schedule there. Here the rate rises during warm-up and stays.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

SCALARS = "schedule_free"  # the owner, in the state, of what all parameters share


class ScheduleFree(Optimizer):
    """One step takes y to the next y; y and z are kept, and x follows from them."""

    def __init__(self, groups: list[dict[str, Any]], beta: float, beta2: float, epsilon: float) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.beta, self.beta2, self.epsilon = beta, beta2, epsilon
        parameters = [parameter for group in groups for parameter in group["params"]]
        for parameter in parameters:
            self.state[parameter] = {"z": parameter.detach().clone(), "exp_avg_sq": torch.zeros_like(parameter)}
        self.scalars = {name: parameters[0].new_zeros(()).detach() for name in ("step", "lr_max", "weight_sum")}
        self.state[SCALARS] = self.scalars  # type: ignore[index]  # torch's state may have owners of any kind

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        share = self._next_share(self.param_groups[0]["lr"])
        for group in self.param_groups:
            self._move(group, share)

    @torch.no_grad()
    def answer(self) -> dict[Parameter, Tensor]:
        """x = (y - (1 - beta) z) / beta of every parameter."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        z = [self.state[parameter]["z"] for parameter in parameters]
        return dict(zip(parameters, torch._foreach_lerp(parameters, z, 1 - 1 / self.beta), strict=True))

    def _next_share(self, lr: float | Tensor) -> Tensor:
        """The next z's share of the average: its weight is the square of the largest rate so far."""
        self.scalars["step"].add_(1)
        weight = self.scalars["lr_max"].copy_(self.scalars["lr_max"].clamp(min=lr)).square()
        total = self.scalars["weight_sum"].add_(weight)
        return weight / total.clamp(min=torch.finfo(total.dtype).tiny)

    def _move(self, group: dict[str, Any], share: Tensor) -> None:
        y: list[Tensor] = group["params"]
        gradients = [parameter.grad for parameter in group["params"]]
        z, squares = ([self.state[parameter][name] for parameter in y] for name in ("z", "exp_avg_sq"))
        torch._foreach_mul_(squares, self.beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - self.beta2)
        scale = torch._foreach_div(squares, 1 - self.beta2 ** self.scalars["step"])
        torch._foreach_sqrt_(scale)
        torch._foreach_add_(scale, self.epsilon)
        move = torch._foreach_div(gradients, scale)
        if group["weight_decay"]:
            torch._foreach_add_(move, y, alpha=group["weight_decay"])
        torch._foreach_mul_(move, group["lr"])
        # y + share (z - y), less the part of z's step that reaches y: beside z itself, its share of the average x.
        to_z = torch._foreach_sub(z, y)
        torch._foreach_mul_(to_z, share)
        torch._foreach_add_(y, to_z)
        torch._foreach_sub_(z, move)
        torch._foreach_mul_(move, 1 - self.beta * (1 - share))
        torch._foreach_sub_(y, move)
