"""BatchNorm over the real tokens of a batch, in place of LayerNorm: for comparison with the paper's choice.

In training, a feature is normalised by its mean and variance over all tokens of the batch, so that a token's result depends on
the other tokens, later ones of its own sentence included. In evaluation, running averages of both take their place.

Axes: R rows, W positions, D features.
"""

import torch
from torch import Tensor, nn

from transduce.model.shapes import Bool, Float

MOMENTUM = 0.1  # of the running statistics, as in torch.nn


class TokenBatchNorm(nn.Module):
    """`torch.nn.BatchNorm1d` over the positions that are not padding, however many there are."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, x: Float[Tensor, "R W D"], real: Bool[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
        mean, variance = self._statistics(x.float(), real) if self.training else (self.running_mean, self.running_var)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (x * scale + (self.bias - mean * scale)).to(x.dtype)

    def _statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of every feature; the running statistics follow them."""
        weight = real[..., None].float()
        count = weight.sum().clamp(min=1)
        mean = (x * weight).sum((0, 1)) / count
        variance = ((x - mean).square() * weight).sum((0, 1)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, MOMENTUM)
            self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), MOMENTUM)
        return mean, variance
