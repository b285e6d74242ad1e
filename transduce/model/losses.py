"""Losses of a model's output: cross-entropy with label smoothing (section 5.4), and R-Drop.

Each takes hidden states and the output layer rather than logits, so that projection and loss can be one kernel on a GPU,
or run in chunks on a CPU. The plain PyTorch form is the reference for both.

Axes: R rows, W target positions, D width of the hidden states, V target classes (all ids but `<pad>`).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, linear, pad

from transduce.model import kernels
from transduce.model.chunked_loss import chunked_loss
from transduce.model.shapes import Float, Int

IGNORED = -100  # the label of a padding position

OutputLayer = tuple[Float[Tensor, "V D"], Float[Tensor, "V"] | None]


class Loss(NamedTuple):
    """The loss of a batch, summed over its target tokens."""

    minimised: Tensor  # with label smoothing and, if enabled, R-Drop
    cross_entropy: Tensor  # without them, as validation measures it; has no gradient


def projected_loss(
    hidden: Float[Tensor, "R W D"], table: Tensor, bias: Tensor | None, labels: Int[Tensor, "R W"], smoothing: float
) -> Loss:
    """The loss of these hidden states; `table` holds the output embedding of every id, `<pad>` last."""
    if kernels.supports(hidden):
        return Loss(*kernels.projected_cross_entropy(*with_bias_as_feature(hidden, table, bias), labels, smoothing))
    if hidden.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        real = (labels != IGNORED).flatten().nonzero()[:, 0]  # a mask as index has a slower gradient
        chosen = labels.flatten()[real].long()
        return Loss(*chunked_loss(hidden.flatten(0, 1).index_select(0, real), table[:-1], bias, chosen, smoothing))
    return both_losses(linear(hidden, table[:-1], bias), labels, smoothing)


def projected_r_drop(
    hidden: Float[Tensor, "R2 W D"],
    table: Tensor,
    bias: Tensor | None,
    labels: Int[Tensor, "R W"],
    smoothing: float,
    weight: float,
) -> Loss:
    """Mean cross-entropy of two passes, which are stacked along the rows, plus `weight / 2` times their mean divergence.

    This is half of the published sum, so that the loss per token is on the usual scale.
    """
    if kernels.supports(hidden):
        hidden, table = with_bias_as_feature(hidden, table, bias)
        return Loss(*kernels.projected_r_drop(hidden, table, labels, smoothing, weight))
    one, other = linear(hidden, table[:-1], bias).float().chunk(2)
    apart = _divergence(one, other, labels) + _divergence(other, one, labels)
    first, second = (both_losses(logits, labels, smoothing) for logits in (one, other))
    return Loss(
        (first.minimised + second.minimised + weight * apart / 2) / 2,
        (first.cross_entropy + second.cross_entropy) / 2,
    )


def with_bias_as_feature(hidden: Tensor, table: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same logits without a bias: it becomes one more column of the table, and the feature that it is multiplied by is 1.

    Zeros fill both up to the width that products need to be fast.
    """
    if bias is None:
        return hidden, table
    column = pad(bias, (0, 1))[:, None].to(table.dtype)  # `<pad>` has no bias
    filled = -(hidden.shape[-1] + 1) % kernels.ALIGNED
    ones = pad(torch.ones_like(hidden[..., :1]), (0, filled))
    return torch.cat([hidden, ones], -1), torch.cat([table, pad(column, (0, filled))], -1)


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy summed over real tokens against 1 - smoothing on the label and smoothing spread over all classes.

    `<pad>` is not an output class, so none of the smoothing goes to it (section 5.4).
    """
    return cross_entropy(
        logits.flatten(0, -2).float(),
        labels.flatten().long(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
        reduction="sum",
    )


def both_losses(logits: Tensor, labels: Tensor, smoothing: float) -> Loss:
    """The loss with and without smoothing; the second costs little more."""
    smoothed = smoothed_loss(logits, labels, smoothing)
    return Loss(smoothed, _without_smoothing(smoothed, logits, labels, smoothing))


@torch.no_grad()
def _without_smoothing(smoothed: Tensor, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy from its smoothed form: at each position they differ by s (logit of the label - mean logit)."""
    if smoothing == 0:
        return smoothed.detach()
    real = labels != IGNORED
    of_label = logits.gather(-1, labels.long().clamp(min=0)[..., None])[..., 0].float()
    difference = (of_label - logits.mean(-1, dtype=torch.float32)) * real
    return smoothed - smoothing * difference.sum()


def _divergence(p: Tensor, q: Tensor, labels: Tensor) -> Tensor:
    """KL(p || q) of two tables of logits, summed over real tokens."""
    positions = kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    return (positions * (labels != IGNORED)).sum()
