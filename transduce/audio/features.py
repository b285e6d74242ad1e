"""Log-mel features: 80 numbers for every 10 ms of sound.

Slaney's mel scale and area-normalised triangles, as in librosa and Whisper: linear below 1 kHz, logarithmic above. The energies
of 25 ms windows are floored at 1e-10 before the natural logarithm. Knows samples at 16 kHz, and no files.

Axes: T samples, N frames, M mel bins, K frequencies of the Fourier transform.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RATE = 16_000  # samples per second
WINDOW, HOP = 400, 160  # samples: 25 ms and 10 ms
BINS = 80
FLOOR = 1e-10
FRAME_SECONDS = HOP / RATE

_LINEAR_HZ = 200 / 3  # hertz per mel below the knee of Slaney's scale
_KNEE_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27  # per mel above it


def log_mel(samples: Tensor) -> Tensor:
    """The features [N, M] of samples [T] at 16 kHz, one frame for every 160 samples and one more; T must exceed 200.

    Windows are centred on their frames, and the sound is mirrored at both ends.
    """
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(samples, WINDOW, HOP, window=window, center=True, return_complex=True)
    energies = torch.from_numpy(mel_triangles()) @ spectrum.abs().square()
    return energies.clamp(min=FLOOR).log().T.contiguous()


@cache
def mel_triangles() -> NDArray[np.float32]:
    """The weight of each frequency in each mel bin [M, K]: triangles of equal area, evenly spaced on the mel scale."""
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    corners = _hertz(np.linspace(0, _mels(RATE / 2), BINS + 2))
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - left) / (centre - left), (right - frequencies) / (right - centre)
    triangles = np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)
    return np.asarray(triangles, np.float32)


def _mels(hertz: float) -> float:
    return (
        float(_KNEE_HZ / _LINEAR_HZ + np.log(hertz / _KNEE_HZ) / _LOG_STEP) if hertz > _KNEE_HZ else hertz / _LINEAR_HZ
    )


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _KNEE_HZ / _LINEAR_HZ
    return np.where(mels < knee, _LINEAR_HZ * mels, _KNEE_HZ * np.exp(_LOG_STEP * (mels - knee)))
