"""Recordings from untrusted clients: decoded from memory, with limits on type, length, channels and sampling rate.

Nothing is written to a file, and no more is decoded than is allowed, whatever a header promises. Errors do not name the file.
Decoding imports no torch, so that the server can do it in a small process (`transduce/server/decoding.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from transduce.audio.recording import TYPES, Recording
from transduce.audio.soundfiles import LOUDEST, LOWEST_RATE, SHORTEST_SECONDS, AudioError, soundfile
from transduce.audio.truncation import truncation

if TYPE_CHECKING:
    from torch import Tensor

CHANNELS = 32
RATES = (LOWEST_RATE, 192_000)  # hertz
DAMAGED = "cannot be decoded: it is damaged or incomplete"
_AT_ONCE = 1 << 20  # values that are decoded at once
_UPLOADED = Recording("the recording")


class UploadError(AudioError):
    """A recording that is refused; `reason` is `type`, `too long`, `too short`, `empty` or `broken`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(_UPLOADED, reason, message)
        self.problem = message


@dataclass(frozen=True)
class UploadLimits:
    """Which recordings are decoded."""

    seconds: float
    types: tuple[str, ...] = TYPES


@dataclass(frozen=True)
class Sound:
    """Decoded samples: the mean of the channels, in 32-bit floating point, at the rate of the recording."""

    samples: Any  # a NumPy array
    rate: int

    def resampled(self) -> "Tensor":
        """The samples at 16 kHz."""
        import torch

        from transduce.audio.features import RATE
        from transduce.audio.resampling import resample

        return resample(torch.from_numpy(self.samples), self.rate, RATE)


def type_of(content: bytes) -> str:
    """The type of a recording by its first bytes, or an empty string."""
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "wav"
    if content[:3] == b"ID3" or _begins_a_frame(content):
        return "mp3"
    return {b"fLaC": "flac", b"OggS": "ogg"}.get(content[:4], "")


def _begins_a_frame(content: bytes) -> bool:
    """Whether an mp3 without tags begins here: the header of a frame of layer III, without values that are reserved."""
    if len(content) < 4 or content[0] != 0xFF or content[1] >> 5 != 0b111:
        return False
    version, layer = content[1] >> 3 & 0b11, content[1] >> 1 & 0b11
    bit_rate, rate = content[2] >> 4, content[2] >> 2 & 0b11
    return version != 0b01 and layer == 0b01 and bit_rate not in (0, 0b1111) and rate != 0b11


def decode(content: bytes, limits: UploadLimits) -> Sound:
    """The sound of a recording, or an `UploadError`."""
    _check_type(content, limits.types)
    package = soundfile()
    try:
        with package.SoundFile(BytesIO(content)) as file:
            _check_header(file, limits.seconds)
            sound = Sound(_read(file, round(limits.seconds * file.samplerate)), file.samplerate)
    except (package.LibsndfileError, RuntimeError, TypeError, ValueError, MemoryError):
        raise UploadError("broken", DAMAGED) from None
    _check_samples(sound)
    return sound


def _check_type(content: bytes, types: Sequence[str]) -> None:
    if not content:
        raise UploadError("empty", "it has no bytes")
    if (found := type_of(content)) not in types:
        what = f"{found} is not accepted" if found else "it is not a recording of a known type"
        raise UploadError("type", f"{what}; send {', '.join(types)}")
    if missing := truncation(BytesIO(content)):
        raise UploadError("broken", f"the file is cut short: {missing}")


def _check_header(file: Any, longest_seconds: float) -> None:
    if not 1 <= file.channels <= CHANNELS:
        raise UploadError("type", f"it has {file.channels} channels; at most {CHANNELS} are accepted")
    if not RATES[0] <= file.samplerate <= RATES[1]:
        raise UploadError(
            "type", f"its sampling rate is {file.samplerate:,} Hz, not between {RATES[0]:,} and {RATES[1]:,}"
        )
    if file.frames > longest_seconds * file.samplerate:
        seconds = file.frames / file.samplerate
        raise UploadError("too long", f"it lasts {seconds:,.1f} s; at most {longest_seconds:g} s are accepted")


def _read(file: Any, most: int) -> Any:
    """The mean of the channels, decoded block by block; a file that ends early is refused."""
    blocks, left = [], min(file.frames, most)
    while left > 0:
        block = file.read(min(left, _AT_ONCE // file.channels), dtype="float32", always_2d=True)
        if not len(block):
            raise UploadError("broken", f"the file is cut short: {left:,} of {file.frames:,} samples are missing")
        blocks.append(block.mean(1))
        left -= len(block)
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)


def _check_samples(sound: Sound) -> None:
    count = len(sound.samples)
    if not count:
        raise UploadError("empty", "it has no samples")
    if not (np.abs(sound.samples) <= LOUDEST).all():
        raise UploadError("broken", "it has samples that are NaN, infinite or far beyond full scale")
    if count < SHORTEST_SECONDS * sound.rate:
        raise UploadError("too short", f"it lasts {1000 * count / sound.rate:.0f} ms; it must last at least 50 ms")
