"""Resampling by a windowed sinc: sound of any sampling rate at another one, without aliases.

Output sample j is the sinc interpolation of the input at time j / new rate, low-pass filtered below half of the lower rate. The
weights depend only on the phase of j, so they are computed once for each phase.

Axes: P phases, K weights of an output sample, B blocks of P outputs.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

ZEROS = 16  # zero crossings of the sinc on each side
ROLL_OFF = 0.94  # of half the lower rate: where the low-pass filter begins
_PRODUCTS_AT_ONCE = 1 << 23  # of samples and weights; bounds the memory for recordings of any length and rate


def resample(samples: Tensor, rate: int, new_rate: int) -> Tensor:
    """The same sound [T] with `new_rate` samples per second."""
    if rate == new_rate:
        return samples
    common = math.gcd(rate, new_rate)
    step, phases = rate // common, new_rate // common
    weights, first = _weights(step, phases)
    blocks = -(-len(samples) // step)
    reach = int(-first.min())
    needed = (blocks - 1) * step + int(first.max()) + weights.shape[1]
    padded = torch.nn.functional.pad(samples, (reach, max(0, needed - len(samples))))
    index = first[:, None] + reach + torch.arange(weights.shape[1])
    at_once = max(1, _PRODUCTS_AT_ONCE // weights.numel())
    parts = [
        (padded[(torch.arange(begin, min(begin + at_once, blocks)) * step)[:, None, None] + index] * weights).sum(-1)
        for begin in range(0, blocks, at_once)
    ]
    return torch.cat(parts).flatten()[: -(-len(samples) * new_rate // rate)]


@lru_cache(maxsize=8)
def _weights(step: int, phases: int) -> tuple[Tensor, Tensor]:
    """The weights [P, K] of each phase, and the number of the input sample that each row begins with."""
    cut = ROLL_OFF * min(1.0, phases / step)  # of half the input rate
    reach = math.ceil(ZEROS / cut)
    time = torch.arange(phases, dtype=torch.float64) * step / phases  # of each output, counted in input samples
    first = time.floor().long() - reach + 1
    distance = time[:, None] - (first[:, None] + torch.arange(2 * reach))
    window = torch.cos(distance * (math.pi / 2 / reach)).square() * (distance.abs() < reach)
    return (cut * torch.sinc(cut * distance) * window).float(), first
