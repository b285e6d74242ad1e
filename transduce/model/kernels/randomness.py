"""Which elements dropout keeps, as a function of a seed and an element's place: nothing is stored for the backward pass.

A 32-bit mix of the place is as random as dropout needs, at a tenth of the instructions of torch's Philox, which would
cost more than the memory traffic it sits in. The seed is drawn from torch's generator, on the device, once a call.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

GRAIN = 1 << 32


def draw_seed(like: Tensor) -> Tensor:
    """A number for one call of a kernel; drawn inside a CUDA graph it is new at every replay."""
    return torch.randint(torch.iinfo(torch.int64).max, (1,), device=like.device)


def threshold(rate: float) -> int:
    """The share of 32-bit numbers below this is `rate`."""
    return min(round(rate * GRAIN), GRAIN - 1)


@triton.jit
def kept(seed_pointer, place, threshold):
    """True with probability 1 - rate for each place."""
    seed = tl.load(seed_pointer)
    bits = place.to(tl.uint32) ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = bits + (seed >> 32).to(tl.uint32)
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return bits >= threshold.to(tl.uint32)
