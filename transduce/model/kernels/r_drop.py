"""The R-Drop loss of two passes over the same positions, which overwrites both passes' logits with their gradients.

Let P and Q be the two predictions, and p and q their logarithms. The gradient of KL(P || Q) + KL(Q || P) with respect to the
logits of P is P (p - q - KL(P || Q)) + P - Q; for those of Q, P and Q are exchanged.

Axes: N positions of one pass, V ids.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from transduce.model.kernels.cross_entropy import EACH, LANES, Sums, aligned, gradients_of_product, row_sums, summed


def projected_r_drop(hidden: Tensor, table: Tensor, labels: Tensor, smoothing: float, weight: float) -> Sums:
    """The mean cross-entropy of both passes plus `weight` times half their mean divergence, summed over labelled positions;
    and the mean cross-entropy without smoothing, which has no gradient.

    `hidden` has the positions of the first pass followed by those of the second; `labels` has the positions of one pass.
    """
    classes = table.shape[0] - 1
    return _ProjectedRDrop.apply(hidden.flatten(0, -2), aligned(table), labels.flatten(), smoothing, weight, classes)  # type: ignore[no-any-return]


class _ProjectedRDrop(Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, labels: Tensor, smoothing: float, weight: float, classes: int
    ) -> Sums:
        logits = hidden @ table.t()
        losses = torch.empty(2, len(labels), dtype=torch.float32, device=logits.device)
        _to_gradients[(len(labels),)](
            logits, logits.stride(0), labels, *losses, len(labels), smoothing, weight, classes, V=logits.shape[1],
            LANES=LANES, EACH=EACH, TURNS=triton.cdiv(logits.shape[1], LANES * EACH), num_warps=LANES // 32,
        )  # fmt: skip
        ctx.save_for_backward(hidden, table, logits)
        return summed(ctx, losses)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, table, of_logits = ctx.saved_tensors
        return (*gradients_of_product(hidden, table, of_logits, gradient), None, None, None, None)


@triton.jit
def _to_gradients(
    logits, stride, labels, losses, plain_losses, positions, smoothing, weight, classes,
    V: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    counts = label >= 0
    one, other = logits + row * stride, logits + (row + positions) * stride
    lanes = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    at_label = tl.where(counts, label, 0)
    # Before the sums, at which all warps wait for each other: a warp that is ahead overwrites the logits.
    of_label = tl.load(one + at_label).to(tl.float32) + tl.load(other + at_label).to(tl.float32)
    whole_one, plain_one = row_sums(one, lanes, classes, LANES, EACH, TURNS)
    whole_other, plain_other = row_sums(other, lanes, classes, LANES, EACH, TURNS)
    forth, back = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
    for turn in range(TURNS):  # both rows are still in the cache
        ids = turn * LANES * EACH + lanes
        p = tl.load(one + ids, ids < classes, 0.0).to(tl.float32) - whole_one
        q = tl.load(other + ids, ids < classes, 0.0).to(tl.float32) - whole_other
        forth += tl.sum(tl.where(ids < classes, tl.exp(p) * (p - q), 0.0), 1)
        back += tl.sum(tl.where(ids < classes, tl.exp(q) * (q - p), 0.0), 1)
    to_other, to_one = tl.sum(forth, 0), tl.sum(back, 0)
    spread = smoothing / classes
    entropies = whole_one + whole_other - (1 - smoothing) * of_label - spread * (plain_one + plain_other)
    loss = (entropies + weight * (to_other + to_one) / 2) / 2
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    tl.store(plain_losses + row, tl.where(counts, (whole_one + whole_other - of_label) / 2, 0.0))
    for turn in range(TURNS):
        ids = turn * LANES * EACH + lanes
        p = tl.load(one + ids, ids < classes, 0.0).to(tl.float32) - whole_one
        q = tl.load(other + ids, ids < classes, 0.0).to(tl.float32) - whole_other
        of_p, of_q = tl.exp(p), tl.exp(q)
        truth = spread + tl.where(ids == label, 1 - smoothing, 0.0)
        apart_p = of_p * (p - q - to_other) + of_p - of_q
        apart_q = of_q * (q - p - to_one) + of_q - of_p
        real = counts & (ids < classes)
        gradient_p = tl.where(real, (of_p - truth + weight * apart_p / 2) / 2, 0.0)
        gradient_q = tl.where(real, (of_q - truth + weight * apart_q / 2) / 2, 0.0)
        tl.store(one + ids, gradient_p.to(logits.dtype.element_ty), ids < V)
        tl.store(other + ids, gradient_q.to(logits.dtype.element_ty), ids < V)
