"""Dropout with a faster random number generator on CPUs.

On CPUs torch samples a double for every element on a single thread, which took a quarter of a small model's step
(docs/log.md). Sixteen random bits per element are enough. Differs from the paper: the rate is a multiple of 1/65,536.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

GRAIN = 1 << 16

_of_thread = threading.local()


@contextmanager
def dropout_generator(generator: torch.Generator) -> Iterator[None]:
    """Use this generator for dropout on CPUs in the current thread; torch's default generator is shared by all threads."""
    _of_thread.generator = generator
    try:
        yield
    finally:
        _of_thread.generator = None


def generator_of_thread() -> torch.Generator | None:
    """The generator that `dropout_generator` set for this thread; None means torch's default."""
    return getattr(_of_thread, "generator", None)


class Dropout(nn.Dropout):
    """In training, set a fraction p of the elements to zero and scale up the others."""

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(input)
        return input * random_scale(input, self.p)


def random_scale(like: Tensor, rate: float) -> Tensor:
    """0 with probability `rate`, else 1 / (1 - rate), for each element; random numbers come from `generator_of_thread`."""
    words = torch.empty((like.numel() + 3) // 4, dtype=torch.int64)
    words.random_(-(1 << 63), None, generator=generator_of_thread())
    bits = words.view(torch.int16)[: like.numel()].view(like.shape)
    dropped = min(round(rate * GRAIN), GRAIN - 1)
    keep = bits >= dropped - GRAIN // 2
    return keep.to(like.dtype).mul_(GRAIN / (GRAIN - dropped))
