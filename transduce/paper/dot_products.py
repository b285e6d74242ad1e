"""Why dot products are divided by sqrt(d_k): the variance of the logits, and the gradient that softmax lets through.

Section 3.2.1 of the paper suspects that large dot products push softmax into regions with extremely small gradients. Here both are
computed for random queries and keys with mean 0 and variance 1, as in its footnote. Knows numbers only, no model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KEYS, QUERIES = 32, 512


@dataclass(frozen=True)
class DotProducts:
    """At one width of keys, with and without the factor."""

    d_k: int
    scaled: bool
    variance: float  # of the logits
    gradient: float  # median norm of the derivative of the attention weights by the logits
    largest: float  # mean of the largest attention weight


def measure_dot_products(d_k: int, scaled: bool, seed: int = 1) -> DotProducts:
    draw = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(QUERIES, 1, d_k, generator=draw), torch.randn(QUERIES, KEYS, d_k, generator=draw)
    logits = (queries * keys).sum(-1)
    if scaled:
        logits = logits / d_k**0.5
    weights = logits.softmax(-1)
    return DotProducts(
        d_k=d_k,
        scaled=scaled,
        variance=float(logits.var()),
        gradient=float(softmax_gradient(weights)),
        largest=float(weights.max(-1).values.mean()),
    )


def softmax_gradient(weights: Tensor) -> Tensor:
    """The median norm of the Jacobian diag(w) - w w^T of softmax: 0 where one weight is 1 and nothing can be learned."""
    jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
    return torch.linalg.matrix_norm(jacobian).median()


def measure_all() -> list[DotProducts]:
    return [measure_dot_products(d_k, scaled) for scaled in (True, False) for d_k in WIDTHS]
