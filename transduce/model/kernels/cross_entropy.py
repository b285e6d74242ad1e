"""Label-smoothed cross-entropy that overwrites the logits with their gradient.

A row of logits is read twice, the second time from the cache, and written once, without a float32 copy or further passes.

Axes: N positions, V ids.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from transduce.model.kernels import ALIGNED

LANES, EACH = 256, 8  # threads of a program, and logits that a thread reads at once
LOWEST = tl.constexpr(-1e30)  # the maximum of a lane that has read no logit yet
BITS = tl.constexpr(1 / math.log(2))  # converts e^x to 2^(x BITS): the hardware computes powers of 2

Sums = tuple[Tensor, Tensor]


def projected_cross_entropy(hidden: Tensor, table: Tensor, labels: Tensor, smoothing: float) -> Sums:
    """The loss with and without smoothing, summed over positions with a label (>= 0); `table` has the embeddings of all ids.

    Only the first has a gradient. The last id is `<pad>`, which is not a class: its logit is ignored and has no gradient. The
    same holds for the rows that fill the table up to a multiple of ALIGNED.
    """
    classes = table.shape[0] - 1
    return _ProjectedCrossEntropy.apply(hidden.flatten(0, -2), aligned(table), labels.flatten(), smoothing, classes)  # type: ignore[no-any-return]


def aligned(table: Tensor) -> Tensor:
    """The table with rows of zeros up to a multiple of ALIGNED, so that rows of logits have a length that products compute fast."""
    return pad(table, (0, 0, 0, -table.shape[0] % ALIGNED))


class _ProjectedCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, labels: Tensor, smoothing: float, classes: int) -> Sums:
        logits = hidden @ table.t()
        losses = to_gradient(logits, labels, smoothing, classes)
        ctx.save_for_backward(hidden, table, logits)
        return summed(ctx, losses)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, table, of_logits = ctx.saved_tensors
        return (*gradients_of_product(hidden, table, of_logits, gradient), None, None, None)


def summed(ctx: Any, losses: Tensor) -> Sums:
    """Sum the losses [2, N] over all positions; only the first has a gradient."""
    smoothed, plain = losses.sum(1)
    ctx.mark_non_differentiable(plain)
    return smoothed, plain


def gradients_of_product(hidden: Tensor, table: Tensor, of_logits: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the hidden states and of the table, given those of the logits and of the loss."""
    by = gradient.to(hidden.dtype)
    return (of_logits @ table).mul_(by), (of_logits.t() @ hidden).mul_(by)


def to_gradient(logits: Tensor, labels: Tensor, smoothing: float, classes: int) -> Tensor:
    """The loss of each position with and without smoothing [2, N]; the logits become the gradient of the first."""
    positions, ids = logits.shape
    losses = torch.empty(2, positions, dtype=torch.float32, device=logits.device)
    _to_gradient[(positions,)](
        logits, logits.stride(0), labels, *losses, smoothing, classes, V=ids,
        LANES=LANES, EACH=EACH, TURNS=triton.cdiv(ids, LANES * EACH), num_warps=LANES // 32,
    )  # fmt: skip
    return losses


@triton.jit
def _to_gradient(
    logits, stride, labels, losses, plain_losses, smoothing, classes,
    V: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    at = logits + row * stride
    lanes = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    counts = label >= 0
    # Before the sums, at which all warps wait for each other: a warp that is ahead overwrites the logits.
    of_label = tl.load(at + tl.where(counts, label, 0)).to(tl.float32)
    whole, plain = row_sums(at, lanes, classes, LANES, EACH, TURNS)
    spread = smoothing / classes
    tl.store(losses + row, tl.where(counts, whole - (1 - smoothing) * of_label - spread * plain, 0.0))
    tl.store(plain_losses + row, tl.where(counts, whole - of_label, 0.0))
    for turn in range(TURNS):  # the row is still in the cache
        ids = turn * LANES * EACH + lanes
        values = tl.load(at + ids, ids < classes, float("-inf")).to(tl.float32)
        gradient = tl.exp2(values * BITS - whole * BITS) - spread - tl.where(ids == label, 1 - smoothing, 0.0)
        gradient = tl.where(counts & (ids < classes), gradient, 0.0)
        tl.store(at + ids, gradient.to(logits.dtype.element_ty), ids < V)


@triton.jit
def row_sums(at, lanes, classes, LANES: tl.constexpr, EACH: tl.constexpr, TURNS: tl.constexpr):
    """The log-sum-exp and the sum of a row. Each lane has its own sums, so that lanes are combined only once per row."""
    most = tl.full((LANES,), float("-inf"), tl.float32)
    powers, plain = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    for turn in range(TURNS):
        ids = turn * LANES * EACH + lanes
        values = tl.load(at + ids, ids < classes, float("-inf")).to(tl.float32)
        higher = tl.maximum(tl.maximum(most, tl.max(values, 1)), LOWEST)
        turned = tl.exp2(values * BITS - (higher * BITS)[:, None])
        powers = powers * tl.exp2((most - higher) * BITS) + tl.sum(turned, 1)
        plain += tl.sum(tl.where(ids < classes, values, 0.0), 1)
        most = higher
    highest = tl.max(most, 0)
    return highest + tl.log(tl.sum(powers * tl.exp(most - highest), 0)), tl.sum(plain, 0)
