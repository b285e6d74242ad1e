"""Weight normalisation (Salimans and Kingma 2016): the length and the direction of each output's weights are learned apart.

Axes: O outputs, I inputs.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from transduce.model.shapes import Float


class NormedLinear(nn.Module):
    """x W^T + b, where row o of W is gain[o] times direction[o] divided by its length."""

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        """Begins as a linear layer with weights from N(0, std), each row's gain being its length."""
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs))
        self.gain = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        nn.init.normal_(self.direction, std=std)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.gain.copy_(self.direction.norm(dim=1))

    @property
    def weight(self) -> Float[Tensor, "O I"]:
        direction = self.direction.float()
        return (direction * (self.gain.float() / direction.norm(dim=1))[:, None]).to(self.direction.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
