"""Cross-entropy with label smoothing (section 5.4), and the plain cross-entropy beside it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from transduce.data.batches import Batch


class Loss(NamedTuple):
    """What a batch costs, summed over its target tokens."""

    minimised: Tensor  # with label smoothing and whatever else training asks for
    cross_entropy: Tensor  # without them, as validation measures it; carries no gradient


def smoothed_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy summed over real tokens against 1 - smoothing on the label and smoothing spread over all classes.

    `<pad>` is no class of the output, so the spread leaves it out (section 5.4).
    """
    return cross_entropy(
        logits.flatten(0, -2).float(),
        labels.flatten().long(),
        ignore_index=Batch.IGNORED,
        label_smoothing=smoothing,
        reduction="sum",
    )


def both_losses(logits: Tensor, labels: Tensor, smoothing: float) -> Loss:
    """The smoothed loss and the plain one, for little more than the price of the first."""
    smoothed = smoothed_loss(logits, labels, smoothing)
    return Loss(smoothed, _without_smoothing(smoothed, logits, labels, smoothing))


@torch.no_grad()
def _without_smoothing(smoothed: Tensor, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy from its smoothed form: at each place they differ by s (logit of the label - mean logit)."""
    if smoothing == 0:
        return smoothed.detach()
    real = labels != Batch.IGNORED
    of_label = logits.gather(-1, labels.long().clamp(min=0)[..., None])[..., 0].float()
    difference = (of_label - logits.mean(-1, dtype=torch.float32)) * real
    return smoothed - smoothing * difference.sum()
