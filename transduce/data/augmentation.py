"""Augmented recordings: another speed, and masks over stretches of time and bands of frequency (SpecAugment, Park et al. 2019).

Everything is drawn from (seed, epoch, number of the utterance), so a resumed run sees what it would have seen. Speeds change
lengths and are chosen before an epoch is planned. Knows arrays of features; a masked value is 0, the mean of its bin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.config import DataConfig

_SPEEDS, _MASKS = 0x73706565, 0x6D61736B  # keep these draws independent of each other and of the order of an epoch


@dataclass(frozen=True)
class Augmentation:
    """How the recordings of one epoch are changed."""

    data: DataConfig
    seed: int
    epoch: int

    def speeds(self, utterances: int) -> NDArray[np.int64]:
        """Which of the speeds each utterance is played at."""
        draw = np.random.default_rng([self.seed, self.epoch, _SPEEDS])
        return draw.integers(0, max(1, len(self.data.speeds)), utterances)

    def masked(self, features: NDArray[np.float16], utterance: int) -> NDArray[np.float16]:
        """A copy of the features [N, M] with some bands and stretches set to 0."""
        data, (frames, bins) = self.data, features.shape
        draw = np.random.default_rng([self.seed, self.epoch, utterance, _MASKS])
        masked = features.copy()
        for _ in range(data.frequency_masks):
            begin, end = _stretch(draw, bins, data.frequency_mask_bins)
            masked[:, begin:end] = 0
        for _ in range(data.time_masks):
            begin, end = _stretch(draw, frames, int(data.time_mask_share * frames))
            masked[begin:end] = 0
        return masked


def _stretch(draw: np.random.Generator, length: int, most: int) -> tuple[int, int]:
    """A random stretch of at most `most` out of `length`."""
    width = int(draw.integers(0, min(most, length) + 1))
    begin = int(draw.integers(0, length - width + 1))
    return begin, begin + width
