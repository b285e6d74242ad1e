"""A tiny model and random pairs, for tests of the loss and of replicas."""

import numpy as np
import torch

from transduce.config import TransformerConfig
from transduce.data.batches import Batch, make_batch
from transduce.model import Transformer
from transduce.training.loss import batch_loss

SIZE = 40
Gradients = dict[str, torch.Tensor]


class Pairs:
    """Random sentences, as `make_batch` wants them."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.sides = [[draw.integers(0, SIZE - 1, draw.integers(1, 9)) for _ in range(count)] for _ in range(2)]
        self.source, self.target = (side.__getitem__ for side in self.sides)


def make_model(**settings: object) -> Transformer:
    torch.manual_seed(1)
    shape = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    return Transformer(TransformerConfig(**(shape | {"dropout": 0.0} | settings)), SIZE, SIZE).train()  # type: ignore[arg-type]


def batch_of(numbers: np.ndarray) -> Batch:
    return make_batch(Pairs(20), numbers, SIZE - 1, SIZE - 1)  # type: ignore[arg-type]


def backward(model: Transformer, numbers: np.ndarray) -> float:
    loss = batch_loss(model, batch_of(numbers), smoothing=0.1).minimised
    loss.backward()
    return float(loss.detach())


def gradients(model: torch.nn.Module) -> Gradients:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
