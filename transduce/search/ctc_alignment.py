"""CTC forced alignment: the frames of each token of a text on the most probable path (Viterbi).

A path runs through the states blank, first token, blank, second token, ..., and may leave out a blank between different tokens. Knows
no text and no model.

Axes: T frames, C classes with the blank last, S = 2L + 1 states of L tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def align(log_probs: NDArray[np.floating[Any]], tokens: Sequence[int]) -> list[tuple[int, int]]:
    """The first frame of each token, and the one after its last; empty where the frames [T, C] are too few for the tokens."""
    blank = log_probs.shape[1] - 1
    states = np.full(2 * len(tokens) + 1, blank)
    states[1::2] = tokens
    skips = np.zeros(len(states), bool)  # whether a state can follow the one before the last
    skips[3::2] = states[3::2] != states[1:-2:2]
    if not len(log_probs):
        return []
    best, steps = _scan(log_probs[:, states].astype(np.float64), skips)
    last = len(states) - 1
    at = last if last == 0 or best[last] >= best[last - 1] else last - 1
    if not np.isfinite(best[at]):
        return []
    return _spans(steps, at, len(tokens))


def _scan(emitted: NDArray[np.float64], skips: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """The best log-probability [S] of paths to each state at the last frame, and how many states each frame [T, S] moved on."""
    best = np.full(emitted.shape[1], -np.inf)
    best[:2] = emitted[0, :2]
    steps = np.zeros(emitted.shape, np.int8)
    for frame in range(1, len(emitted)):
        moves = np.full((3, len(best)), -np.inf)
        moves[0], moves[1, 1:] = best, best[:-1]
        moves[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        steps[frame] = moves.argmax(0)
        best = moves.max(0) + emitted[frame]
    return best, steps


def _spans(steps: NDArray[np.int8], at: int, count: int) -> list[tuple[int, int]]:
    """The frames of each token on the path that ends in the state `at`."""
    spans = [(0, 0)] * count
    for frame in range(len(steps) - 1, -1, -1):
        if at % 2:
            spans[at // 2] = frame, max(frame + 1, spans[at // 2][1])
        at -= int(steps[frame, at])
    return spans
