"""The weights to measure and to keep, where they are not the weights being trained.

Two settings part the two: the moving average (`train.ema`) and Schedule-Free, which trains at y and answers x. Whatever
is validated or written as weights (checkpoints, best, last, averaged) is the kept ones; the trained ones are saved
beside the optimizer's state, to go on from.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.optim import Optimizer

from transduce.checkpoint import Checkpoint, Tensors
from transduce.model import Transformer
from transduce.training.schedule_free import ScheduleFree
from transduce.translator import load_weights

TRAINED = "trained."  # the trained weights' names among the optimizer's tensors


def weights_of(model: Transformer) -> Tensors:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def kept_weights(model: Transformer, optimizer: Optimizer, ema: Tensors) -> Tensors:
    """The moving average where there is one, the answer of an optimizer that has its own, else the model's weights."""
    if isinstance(optimizer, ScheduleFree):
        answer = optimizer.answer()
        return {name: answer[parameter] for name, parameter in model.named_parameters()}
    return ema or weights_of(model)


@contextmanager
def holding(model: Transformer, weights: Tensors) -> Iterator[None]:
    """The model with other weights; afterwards it has its own again."""
    own = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    load_weights(model, weights, "the weights to keep")
    try:
        yield
    finally:
        load_weights(model, own, "the weights")


def trained_tensors(model: Transformer, kept: Tensors) -> Tensors:
    """The trained weights under names of their own; none where the kept ones are the same tensors."""
    own = weights_of(model)
    return {TRAINED + name: own[name] for name in own if own[name].data_ptr() != kept[name].data_ptr()}


def load_trained(model: Transformer, optimizer: Optimizer, ema: Tensors, saved: Checkpoint) -> None:
    """The trained weights of a checkpoint into the model, and into `ema` the moving average where one was kept."""
    trained = {name.removeprefix(TRAINED): t for name, t in saved.optimizer.items() if name.startswith(TRAINED)}
    load_weights(model, trained or saved.weights, "the checkpoint")
    if trained and not isinstance(optimizer, ScheduleFree):
        ema |= {name: saved.weights[name].to(p.device) for name, p in model.named_parameters()}
