"""Silences: long recordings are cut where it is quietest, into pieces that touch each other, and quiet ends can be removed."""

import torch
from torch import Tensor

from transduce.audio.features import HOP, RATE

LONGEST_SECONDS = 25.0  # of a piece
SHORTEST_SECONDS = 8.0  # before a piece may be cut
_WINDOW = RATE // 10  # samples: where a cut falls is known to 0.1 s
_INAUDIBLE = 1e-4  # of full scale
_FEWEST_WINDOWS = 5  # of 10 ms
_LOUD = 0.95  # the quantile of the loudness of 10 ms that quiet is compared with


def pieces(samples: Tensor) -> list[tuple[float, float]]:
    """The beginning and end of each piece in seconds; a recording that is short enough is one piece."""
    whole = len(samples) / RATE
    quiet = samples[: len(samples) // _WINDOW * _WINDOW].reshape(-1, _WINDOW).square().mean(1)
    begin, found = 0.0, []
    while whole - begin > LONGEST_SECONDS:
        first, last = (round((begin + after) * RATE / _WINDOW) for after in (SHORTEST_SECONDS, LONGEST_SECONDS))
        end = (first + int(torch.argmin(quiet[first:last])) + 0.5) * _WINDOW / RATE
        found.append((begin, end))
        begin = end
    return [*found, (begin, whole)]


def without_quiet_ends(samples: Tensor, decibels: float) -> tuple[int, int]:
    """The first sample of the sound and the one after the last: ends that are so much quieter than the loud parts are left out.

    Nothing is left out for 0 decibels, or if less than 50 ms would remain.
    """
    whole, windows = (0, len(samples)), len(samples) // HOP
    if not decibels or not windows:
        return whole
    energies = (samples[: windows * HOP] - samples.mean()).reshape(-1, HOP).square().mean(1)
    heard = (energies > energies.quantile(_LOUD) * 10 ** (-decibels / 10)).nonzero()[:, 0]
    if not len(heard) or heard[-1] - heard[0] < _FEWEST_WINDOWS:
        return whole
    end = int(heard[-1]) + 1
    return int(heard[0]) * HOP, len(samples) if end == windows else end * HOP


def is_silent(samples: Tensor, begin: float, end: float) -> bool:
    """Whether a piece holds no sound at all."""
    return float(samples[round(begin * RATE) : round(end * RATE)].abs().max()) < _INAUDIBLE
