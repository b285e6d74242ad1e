"""The loss of a batch, as the training settings define it."""

from transduce.config import TrainConfig
from transduce.data.batches import Batch
from transduce.model import Loss, Model


def batch_loss(model: Model, batch: Batch, smoothing: float, train: TrainConfig | None = None) -> Loss:
    """The loss summed over the batch's target tokens; with R-Drop if the training settings enable it."""
    if train is not None and train.r_drop > 0:
        return model.r_drop_loss(batch.source, batch.target, batch.labels, smoothing, train.r_drop)
    return model.loss(batch.source, batch.target, batch.labels, smoothing)
