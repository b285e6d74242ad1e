"""Dropout whose random numbers do not cost more than the layer they follow.

Torch draws a double for every element on CPUs, one thread at a time, which was a quarter of a small model's step
(docs/log.md). Sixteen random bits an element are enough. Differs from the paper: the rate is a multiple of 1/65,536.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

GRAIN = 1 << 16

_of_thread = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """In this thread, until the end of the context, dropout on CPUs draws from here: torch's own is everybody's."""
    _of_thread.generator = generator
    try:
        yield
    finally:
        _of_thread.generator = None


def generator_of_thread() -> torch.Generator | None:
    """What `drawing_from` set for this thread; None: torch's own."""
    return getattr(_of_thread, "generator", None)


class Dropout(nn.Dropout):
    """Zero a share p of the elements in training and scale up the others."""

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(input)
        return input * random_scale(input, self.p)


def random_scale(like: Tensor, rate: float) -> Tensor:
    """0 with probability `rate`, else 1 / (1 - rate), for each element; from torch's generator or `drawing_from`'s."""
    words = torch.empty((like.numel() + 3) // 4, dtype=torch.int64)
    words.random_(-(1 << 63), None, generator=generator_of_thread())
    bits = words.view(torch.int16)[: like.numel()].view(like.shape)
    dropped = min(round(rate * GRAIN), GRAIN - 1)
    keep = bits >= dropped - GRAIN // 2
    return keep.to(like.dtype).mul_(GRAIN / (GRAIN - dropped))
