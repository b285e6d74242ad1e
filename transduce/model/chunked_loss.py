"""Projection, cross-entropy and their gradients for CPUs, computed in chunks of rows.

The logits of a whole batch are by far the largest tensor of a step, and PyTorch passes over them six times. A chunk of
logits fits into the cache of a core, is overwritten by its gradient and then dropped; docs/log.md has measurements.

Axes: N tokens, D d_model, V target classes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 128  # rows of a chunk: 4 MB of logits at 8,000 classes; 64 and 256 were slower


def chunked_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Smoothed and plain cross-entropy of `hidden weight^T + bias`, each summed over the N labels; padding must be removed first."""
    return _ChunkedLoss.apply(hidden, weight, bias, labels, smoothing, torch.is_grad_enabled())


class _ChunkedLoss(torch.autograd.Function):
    """Computes the gradients in the forward pass, while the logits are in the cache; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        gradients = _Gradients.zeros(hidden, weight, bias)
        total, plain = torch.zeros(2, dtype=torch.float64)
        buffer = hidden.new_empty(2, min(ROWS, len(hidden)), len(weight))
        for begin in range(0, len(hidden), ROWS):
            rows = slice(begin, begin + ROWS)
            logits, logp = buffer[:, : len(labels[rows])]
            torch.mm(hidden[rows], weight.T, out=logits)
            if bias is not None:
                logits += bias
            torch.log_softmax(logits, dim=1, out=logp)
            on_labels = logp.gather(1, labels[rows, None]).sum()
            total += -(1 - smoothing) * on_labels - smoothing / logp.shape[1] * logp.sum()
            plain -= on_labels
            if with_gradients:
                gradients.add(rows, _to_gradient(logp, labels[rows], smoothing), hidden, weight)
        ctx.save_for_backward(gradients.hidden, gradients.weight, gradients.bias)
        plain = plain.to(hidden.dtype)
        ctx.mark_non_differentiable(plain)
        return total.to(hidden.dtype), plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if gradient is None else gradient * scale for gradient in ctx.saved_tensors)
        return *gradients, None, None, None


@dataclass(frozen=True)
class _Gradients:
    """The gradients of the inputs, to which each chunk adds its part."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    @staticmethod
    def zeros(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> "_Gradients":
        return _Gradients(
            torch.zeros_like(hidden), torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        )

    def add(self, rows: slice, of_logits: Tensor, hidden: Tensor, weight: Tensor) -> None:
        torch.mm(of_logits, weight, out=self.hidden[rows])
        self.weight.addmm_(of_logits.T, hidden[rows])
        if self.bias is not None:
            self.bias.add_(of_logits.sum(0))


def _to_gradient(logp: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Turn log-probabilities, in place, into the gradient of the logits: probabilities minus the smoothed labels."""
    gradient = logp.exp_().sub_(smoothing / logp.shape[1])
    return gradient.scatter_add_(1, labels[:, None], gradient.new_full((len(labels), 1), smoothing - 1))
