"""Consistency: two passes over the same pairs should predict the same, which helps where pairs are few.

The passes differ in their dropout (R-Drop), or in tokens that the second does not see (SimCut). They are one batch of
twice the rows. Sums over real target tokens; asks the host for nothing. Knows neither the loop nor the optimizer.
Differs from the paper, which has one pass and nothing beside cross-entropy.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import kl_div

from transduce.config import TrainConfig
from transduce.data.batches import Batch
from transduce.model import Tokens, Transformer, kernels
from transduce.model.dropout import generator_of_thread
from transduce.training.smoothing import Loss, both_losses


def is_consistent(train: TrainConfig) -> bool:
    """Whether the settings ask for either of the two."""
    return train.r_drop > 0 or train.simcut > 0


def consistent_loss(model: Transformer, batch: Batch, smoothing: float, train: TrainConfig) -> Loss:
    """The loss of a batch with the consistency that the settings ask for, summed over its target tokens."""
    return (r_drop_loss if train.r_drop else simcut_loss)(model, batch, smoothing, train)


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


def simcut_loss(model: Transformer, batch: Batch, smoothing: float, train: TrainConfig) -> Loss:
    """SimCut (Gao et al. 2022): cross-entropy of the pass that sees all, and its divergence from the one that does not.

    The gradient flows through both passes of the divergence, as its authors have it and found to matter.
    """
    hidden = _hidden(model, beside(batch, with_cuts(model, batch, train.simcut_rate)))
    whole, cut = model.project(hidden).float().chunk(2)
    seen = both_losses(whole, batch.labels, smoothing)
    return Loss(seen.minimised + train.simcut * _divergence(whole, cut, batch), seen.cross_entropy)


def with_cuts(model: Transformer, batch: Batch, rate: float) -> Batch:
    """A share of the tokens on both sides become `<pad>`, whose vector is zero; position and sentence stay theirs."""
    source = _cut(batch.source, rate, model.source_embedding.num_embeddings - 1)
    return replace(batch, source=source, target=_cut(batch.target, rate, model.target_pad))


def _cut(tokens: Tokens, rate: float, pad: int) -> Tokens:
    gone = torch.rand(tokens.ids.shape, device=tokens.ids.device, generator=generator_of_thread()) < rate
    return replace(tokens, ids=tokens.ids.masked_fill(gone, pad))


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
