"""Muon (Jordan et al. 2024): momentum in which every matrix is orthogonalised before it is applied.

It updates the matrices inside the layers; another optimizer updates everything else (embeddings, norms, biases).
Differs from the paper, which uses Adam throughout.
"""

from collections import defaultdict

import torch
from torch import Tensor
from torch.optim import Optimizer

from transduce.model import Matrices

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: steep at zero, so that five iterations are enough
ROUNDS = 5
ADAMS_RMS = 0.2  # of an Adam update (Liu et al. 2025): scaled to it, Muon and Adam can share one learning rate


def orthogonalised(matrices: Tensor) -> Tensor:
    """Approximately the nearest orthogonal matrix to each [rows <= columns]: its singular values are close to 1."""
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


class Muon(Optimizer):
    """Muon on `matrices`, `rest` on the other parameters, if any, both at the learning rate of `param_groups`."""

    def __init__(self, matrices: Matrices, weight_decay: float, rest: Optimizer | None = None) -> None:
        super().__init__([{"params": list(matrices), "weight_decay": weight_decay}], {"lr": 0.0})
        for parameter in matrices:
            self.state[parameter] = {"momentum": torch.zeros_like(parameter)}
        self.heights, self.rest = list(matrices.values()), rest
        if rest is not None:
            self.param_groups += rest.param_groups  # the same objects, so that a rate set here also applies there
            self.state.update(rest.state)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        gradients = [parameter.grad for parameter in group["params"]]
        momentum = [self.state[parameter]["momentum"] for parameter in group["params"]]
        torch._foreach_lerp_(momentum, gradients, 1 - MOMENTUM)
        updates = list(torch._foreach_lerp(gradients, momentum, MOMENTUM))  # Nesterov's
        for alike in self._by_shape(updates):
            scale = ADAMS_RMS * alike[0].shape[1] ** 0.5
            torch._foreach_copy_(alike, (orthogonalised(torch.stack(alike)) * scale).unbind())
        if group["weight_decay"]:
            torch._foreach_mul_(group["params"], 1 - group["lr"] * group["weight_decay"])
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(group["params"], updates)
        if self.rest is not None:
            self.rest.step()

    def _by_shape(self, updates: list[Tensor]) -> list[list[Tensor]]:
        """Views of all matrices, grouped by shape; tall ones are transposed."""
        shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for update, heights in zip(updates, self.heights, strict=True):
            for matrix in update.split(heights):
                wide = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
                shapes[wide.shape].append(wide)
        return list(shapes.values())
