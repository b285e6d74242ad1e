"""The weights to measure and to keep, where they are not the weights being trained.

They differ when a moving average (`train.ema`) is kept. Validation and every file of weights (checkpoints, best, last,
averaged) use the kept weights; the trained weights are saved with the optimizer's state, so that training can resume.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from transduce.checkpoint import Checkpoint, Tensors
from transduce.model import Model, stored_tensors
from transduce.translator import load_weights

TRAINED = "trained."  # the trained weights' names among the optimizer's tensors


def weights_of(model: Model) -> Tensors:
    return {name: tensor.detach() for name, tensor in stored_tensors(model).items()}


def kept_weights(model: Model, ema: Tensors) -> Tensors:
    """The moving average where there is one, else the model's weights."""
    return ema or weights_of(model)


@contextmanager
def holding(model: Model, weights: Tensors) -> Iterator[None]:
    """The model with other weights; afterwards it has its own again."""
    own = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    load_weights(model, weights, "the weights to keep")
    try:
        yield
    finally:
        load_weights(model, own, "the weights")


def trained_tensors(model: Model, kept: Tensors) -> Tensors:
    """The trained weights under names of their own; none where the kept ones are the same tensors."""
    own = weights_of(model)
    return {TRAINED + name: own[name] for name in own if own[name].data_ptr() != kept[name].data_ptr()}


def load_trained(model: Model, ema: Tensors, saved: Checkpoint) -> None:
    """The trained weights of a checkpoint into the model, and into `ema` the moving average where one was kept."""
    trained = {name.removeprefix(TRAINED): t for name, t in saved.optimizer.items() if name.startswith(TRAINED)}
    load_weights(model, trained or saved.weights, "the checkpoint")
    if trained:
        ema |= {name: saved.weights[name].to(p.device) for name, p in weights_of(model).items()}
