"""Consistency: two passes over the same pairs should predict the same, which helps where pairs are few.

The two passes of R-Drop differ in their dropout and are computed as one batch of twice the rows. Losses are sums over
real target tokens and never wait for the device. Knows neither the loop nor the optimizer.
Differs from the paper, which has one pass and nothing beside cross-entropy.
"""

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from transduce.config import TrainConfig
from transduce.data.batches import Batch
from transduce.model import Tokens, Transformer, kernels
from transduce.training.smoothing import Loss, both_losses


def is_consistent(train: TrainConfig) -> bool:
    """Whether the settings turn R-Drop on."""
    return train.r_drop > 0


def consistent_loss(model: Transformer, batch: Batch, smoothing: float, train: TrainConfig) -> Loss:
    """The loss of a batch with the consistency that the settings ask for, summed over its target tokens."""
    return r_drop_loss(model, batch, smoothing, train)


def r_drop_loss(model: Transformer, batch: Batch, smoothing: float, train: TrainConfig) -> Loss:
    """R-Drop (Liang et al. 2021): cross-entropy of both passes, and the mean of both divergences between them.

    Half of the published sum: the mean of the passes, so that a loss a token means what it means elsewhere.
    """
    hidden = _hidden(model, beside(batch, batch))
    if kernels.serve(hidden) and model.output_bias is None:
        table = model.output_embedding.weight
        return Loss(*kernels.projected_r_drop(hidden, table, batch.labels, smoothing, train.r_drop))
    one, other = model.project(hidden).float().chunk(2)
    apart = _divergence(one, other, batch) + _divergence(other, one, batch)
    first, second = (both_losses(logits, batch.labels, smoothing) for logits in (one, other))
    return Loss(
        (first.minimised + second.minimised + train.r_drop * apart / 2) / 2,
        (first.cross_entropy + second.cross_entropy) / 2,
    )


def beside(one: Batch, other: Batch) -> Batch:
    """The rows of both, one after the other."""

    def joined(a: Tokens, b: Tokens) -> Tokens:
        return Tokens(torch.cat([a.ids, b.ids]), torch.cat([a.position, b.position]), torch.cat([a.segment, b.segment]))

    return Batch(
        source=joined(one.source, other.source),
        target=joined(one.target, other.target),
        labels=torch.cat([one.labels, other.labels]),
    )


def _hidden(model: Transformer, batch: Batch) -> Tensor:
    return model.decode(batch.target, model.encode(batch.source))


def _divergence(p: Tensor, q: Tensor, batch: Batch) -> Tensor:
    """KL(p || q) of two tables of logits, summed over real tokens."""
    places = kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    return (places * batch.target.real).sum()
