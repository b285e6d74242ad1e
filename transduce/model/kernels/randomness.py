"""Dropout masks as a function of a seed and an element's index, so that the backward pass needs no stored mask.

A 32-bit hash of the index is random enough for dropout and takes a tenth of the instructions of torch's Philox, which would
take longer than the memory traffic around it. Each call samples a new seed from torch's generator on the device.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

GRAIN = 1 << 32


def sample_seed(like: Tensor) -> Tensor:
    """A seed for one call of a kernel; inside a CUDA graph, every replay samples a new one."""
    return torch.randint(torch.iinfo(torch.int64).max, (1,), device=like.device)


def threshold(rate: float) -> int:
    """The number such that a fraction `rate` of all 32-bit numbers is below it."""
    return min(round(rate * GRAIN), GRAIN - 1)


@triton.jit
def kept(seed_pointer, index, threshold):
    """True with probability 1 - rate for each index."""
    seed = tl.load(seed_pointer)
    bits = index.to(tl.uint32) ^ seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = bits + (seed >> 32).to(tl.uint32)
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return bits >= threshold.to(tl.uint32)
