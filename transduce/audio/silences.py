"""Silences: long recordings are cut where it is quietest, into pieces that touch each other, and quiet ends can be removed."""

import torch
from torch import Tensor

from transduce.audio.features import HOP, RATE

LONGEST_SECONDS = 25.0  # of a piece
_SHORTEST = 0.32  # of the longest piece, before a piece may be cut
_WINDOW = RATE // 10  # samples: where a cut falls is known to 0.1 s
_INAUDIBLE = 1e-4  # of full scale
_FEWEST_WINDOWS = 5  # of 10 ms
_LOUD = 0.95  # the quantile of the loudness of 10 ms that quiet is compared with
_NOISE = 0.1  # the quantile that is taken for the noise in pauses
_ABOVE_NOISE = 6.0  # decibels: the loudest 10 ms of some seconds of noise are at most so much louder
_SPEECH_ABOVE_NOISE = 15.0  # decibels: where the difference is smaller, nothing is taken for noise


def pieces(samples: Tensor, longest_seconds: float = LONGEST_SECONDS) -> list[tuple[float, float]]:
    """The beginning and end of each piece in seconds; a recording that is short enough is one piece."""
    whole = len(samples) / RATE
    loudness = _loudness_around(samples)
    begin, found = 0.0, []
    while whole - begin > longest_seconds:
        ends = (begin + share * longest_seconds for share in (_SHORTEST, 1))
        first, last = (round(end * RATE / _WINDOW) for end in ends)
        end = (first + _last_minimum(loudness[first:last]) + 0.5) * _WINDOW / RATE
        found.append((begin, end))
        begin = end
    return [*found, (begin, whole)]


def _loudness_around(samples: Tensor) -> Tensor:
    """The loudest of each 0.1 s and its neighbours, so that a cut has quiet on both sides and not a gap inside a word."""
    energies = samples[: len(samples) // _WINDOW * _WINDOW].reshape(-1, _WINDOW).square().mean(1)
    return torch.nn.functional.max_pool1d(energies[None], 3, stride=1, padding=1)[0] if len(energies) else energies


def _last_minimum(values: Tensor) -> int:
    """Where the last of the lowest values is: in digital silence, it leaves the fewest pieces."""
    return int((values == values.min()).nonzero()[-1])


def without_quiet_ends(samples: Tensor, decibels: float, noise: float = 0.0) -> tuple[int, int]:
    """The first sample of the sound and the one after the last: ends that are so much quieter than the loud parts are left out.

    So are ends that are no louder than the noise of a recording. Nothing is left out for 0 decibels, or if less than 50 ms would remain.
    """
    whole, windows = (0, len(samples)), len(samples) // HOP
    if not decibels or not windows:
        return whole
    energies = _energies(samples)
    quiet = energies.quantile(_LOUD) * _ratio(-decibels)
    heard = (energies > quiet.clamp(min=noise)).nonzero()[:, 0]
    if not len(heard) or heard[-1] - heard[0] < _FEWEST_WINDOWS:
        return whole
    end = int(heard[-1]) + 1
    return int(heard[0]) * HOP, len(samples) if end == windows else end * HOP


def _energies(samples: Tensor) -> Tensor:
    """The energy of every 10 ms."""
    windows = len(samples) // HOP
    return (samples[: windows * HOP] - samples.mean()).reshape(-1, HOP).square().mean(1)


def holds_sound(samples: Tensor, noise: float = 0.0) -> bool:
    """Whether there is more than silence, and more than the noise of a recording."""
    energies = _energies(samples)
    return float(samples.abs().max()) >= _INAUDIBLE and (not len(energies) or float(energies.max()) > noise)


def noise_of(samples: Tensor) -> float:
    """The energy of 10 ms up to which a recording holds noise; 0 if it has no pauses to tell it by."""
    energies = _energies(samples)
    floor, loud = float(energies.quantile(_NOISE)), float(energies.quantile(_LOUD))
    return floor * _ratio(_ABOVE_NOISE) if loud > floor * _ratio(_SPEECH_ABOVE_NOISE) else 0.0


def _ratio(decibels: float) -> float:
    return float(10 ** (decibels / 10))
