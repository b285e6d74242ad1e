"""The length of the pieces that long recordings are transcribed in: that of the recordings that a model learns from."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from transduce.config import Config

SHARE = 0.99  # of the training recordings; the longest may be errors in the corpus
SPARE = 1.5  # times their length, so that a piece has room for a whole utterance wherever the pauses are
FRAMES_PER_SECOND = 100


def fit_piece_length(config: Config, frames: NDArray[np.int32], say: Callable[[str], None]) -> Config:
    """The settings with `data.piece_seconds` lowered to the length of nearly all training recordings.

    A model of short utterances writes nonsense about long ones: taught single words, it hears ten of them as one.
    """
    longest = float(np.quantile(frames, SHARE)) / FRAMES_PER_SECOND
    fitted = max(1.0, math.ceil(10 * SPARE * longest) / 10)
    if fitted >= config.data.piece_seconds:
        return config
    say(
        f"chosen for this data: data.piece_seconds {fitted:g}, because training recordings last up to {longest:.2g} s; longer "
        "recordings are transcribed in pieces"
    )
    return replace(config, data=replace(config.data, piece_seconds=fitted))
