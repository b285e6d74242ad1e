"""Additive attention (Bahdanau et al. 2015): a query and a key are compared by v . tanh(query + key).

The sums of all queries and keys are as many vectors as there are pairs of positions, the largest tensor of a model. They are
computed for one head and some queries at a time, and again in the backward pass instead of kept.

Axes: R rows, H heads, Q query positions, K key positions, E width of a head.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from transduce.model.shapes import Float

ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 28}  # that are computed at once: what fits a cache, or memory


def additive_scores(
    queries: Float[Tensor, "R H Q E"], keys: Float[Tensor, "R H K E"], vector: Float[Tensor, "H E 1"]
) -> Float[Tensor, "R H Q K"]:
    scores: Tensor = _AdditiveScores.apply(queries, keys, vector)
    return scores


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, vector)
        scores = queries.new_empty(*queries.shape[:3], keys.shape[2])
        for head, part in _parts(queries, keys):
            compared = _compared(queries[:, head, part], keys[:, head])
            scores[:, head, part] = (compared @ vector[head].to(queries.dtype))[..., 0]
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, vector = ctx.saved_tensors
        (gradient,) = gradients
        to_queries = torch.empty_like(queries)
        to_keys, to_vector = (torch.zeros_like(tensor, dtype=_precise(tensor)) for tensor in (keys, vector))
        for head, part in _parts(queries, keys):
            compared, outer = _compared(queries[:, head, part], keys[:, head]), gradient[:, head, part]
            to_vector[head, :, 0] += outer.flatten() @ compared.flatten(0, 2)
            above = outer[..., None] * vector[head, :, 0].to(queries.dtype)
            inner = torch.ops.aten.tanh_backward(above, compared)
            to_queries[:, head, part] = inner.sum(2)
            to_keys[:, head] += inner.sum(1)
        return to_queries, to_keys.to(keys.dtype), to_vector.to(vector.dtype)


def _compared(queries: Float[Tensor, "R Q E"], keys: Float[Tensor, "R K E"]) -> Float[Tensor, "R Q K E"]:
    """tanh(query + key) of every pair."""
    return (queries[:, :, None] + keys[:, None]).tanh_()


def _parts(queries: Tensor, keys: Tensor) -> Iterator[tuple[int, slice]]:
    """A head and some of its query positions, which are computed at once."""
    each = max(1, keys.numel() // keys.shape[1])  # elements for one query position of all rows
    count = max(1, ELEMENTS.get(keys.device.type, ELEMENTS["cpu"]) // each)
    for head in range(keys.shape[1]):
        for begin in range(0, queries.shape[2], count):
            yield head, slice(begin, begin + count)


def _precise(tensor: Tensor) -> torch.dtype:
    """In which parts are added up: bfloat16 would lose what is small."""
    return torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
