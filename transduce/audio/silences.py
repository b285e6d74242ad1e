"""Long recordings in pieces that a model can hear, cut where it is quietest. The pieces touch each other: nothing is lost."""

import torch
from torch import Tensor

from transduce.audio.features import RATE

LONGEST_SECONDS = 25.0  # of a piece
SHORTEST_SECONDS = 8.0  # before a piece may be cut
_WINDOW = RATE // 10  # samples: where a cut falls is known to 0.1 s
_INAUDIBLE = 1e-4  # of full scale


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


def is_silent(samples: Tensor, begin: float, end: float) -> bool:
    """Whether a piece holds no sound at all."""
    return float(samples[round(begin * RATE) : round(end * RATE)].abs().max()) < _INAUDIBLE
