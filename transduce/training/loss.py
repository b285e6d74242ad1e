"""What training minimises: from a batch to one number."""

import torch

from transduce.config import TrainConfig
from transduce.data.batches import Batch
from transduce.model import Transformer, kernels
from transduce.training.chunked import chunked_loss
from transduce.training.consistency import consistent_loss, is_consistent
from transduce.training.smoothing import Loss, both_losses


def batch_loss(model: Transformer, batch: Batch, smoothing: float, train: TrainConfig | None = None) -> Loss:
    """The loss of a batch, summed over its target tokens; in training, with the consistency that settings ask for."""
    if train is not None and is_consistent(train):
        return consistent_loss(model, batch, smoothing, train)
    hidden = model.decode(batch.target, model.encode(batch.source))
    if kernels.serve(hidden) and model.output_bias is None:
        return Loss(*kernels.projected_cross_entropy(hidden, model.output_embedding.weight, batch.labels, smoothing))
    if hidden.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        real = batch.target.real.flatten().nonzero()[:, 0]  # a mask as index has a slower gradient
        labels = batch.labels.flatten()[real].long()
        return chunked_loss(hidden.flatten(0, 1).index_select(0, real), *model.classes, labels, smoothing)
    return both_losses(model.project(hidden), batch.labels, smoothing)
