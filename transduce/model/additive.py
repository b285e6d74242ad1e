"""Additive attention (Bahdanau et al. 2015): a query and a key are compared by v . tanh(query + key).

The sums of all queries and keys are as many vectors as there are pairs of positions. They are computed for one head at a time,
and again in the backward pass, so that no more than one head's are ever in memory.

Axes: R rows, H heads, Q query positions, K key positions, E width of a head.
"""

from typing import Any

import torch
from torch import Tensor

from transduce.model.shapes import Float


def additive_scores(
    queries: Float[Tensor, "R H Q E"], keys: Float[Tensor, "R H K E"], vector: Float[Tensor, "H E 1"]
) -> Float[Tensor, "R H Q K"]:
    scores: Tensor = _AdditiveScores.apply(queries, keys, vector)
    return scores


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, vector)
        heads = range(len(vector))
        return torch.stack([(_compared(queries, keys, h) @ vector[h].to(queries.dtype))[..., 0] for h in heads], dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, vector = ctx.saved_tensors
        (gradient,) = gradients
        to_queries, to_keys, to_vector = (torch.empty_like(tensor) for tensor in (queries, keys, vector))
        for h in range(len(vector)):
            compared, outer = _compared(queries, keys, h), gradient[:, h, :, :, None]
            to_vector[h, :, 0] = (compared * outer).sum((0, 1, 2))
            inner = (1 - compared * compared) * vector[h, :, 0].to(queries.dtype) * outer
            to_queries[:, h], to_keys[:, h] = inner.sum(2), inner.sum(1)
        return to_queries, to_keys, to_vector


def _compared(queries: Tensor, keys: Tensor, head: int) -> Tensor:
    """tanh(query + key) of every pair, [R, Q, K, E]."""
    return (queries[:, head, :, None] + keys[:, head, None]).tanh_()
