"""Recordings as samples: any file that libsndfile reads (wav, flac, ogg, opus, mp3), at 16 kHz, with one channel.

Needs the package soundfile, the extra `speech`. Every error is one line that names the file.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.audio.features import RATE
from transduce.audio.recording import Recording
from transduce.audio.resampling import resample
from transduce.errors import DataError, MissingExtra

SHORTEST_SECONDS = 0.05  # two positions of the encoder


class AudioError(DataError):
    """A recording that cannot be used. `reason` says why in two words, so that such recordings can be counted."""

    def __init__(self, path: str, reason: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.reason = reason


def read_samples(recording: Recording, longest_seconds: float = 0.0) -> Tensor:
    """The samples of a recording, with the mean of its channels; `longest_seconds` of 0 means that any length is read."""
    sound, rate = _read(recording, longest_seconds)
    samples = torch.from_numpy(sound).mean(1)
    path = recording.path
    if not len(samples):
        raise AudioError(path, "empty", "the recording is empty: it has no samples")
    if not bool(samples.isfinite().all()):
        raise AudioError(path, "broken", "the recording has samples that are NaN or infinite")
    if len(samples) < SHORTEST_SECONDS * rate:
        raise AudioError(path, "too short", f"the recording is too short: {1000 * len(samples) / rate:.0f} ms")
    return resample(samples, rate, RATE)


def soundfile() -> Any:
    """The package, which is imported only where recordings are read."""
    try:
        import soundfile as package
    except ImportError:
        raise MissingExtra("soundfile", "speech") from None
    return package


def _read(recording: Recording, longest_seconds: float) -> tuple[Any, int]:
    package, path = soundfile(), recording.path
    if Path(path).is_dir():
        raise AudioError(path, "unreadable", "is a folder, not a recording")
    if not Path(path).is_file():
        raise AudioError(path, "missing", "no such file")
    try:
        with package.SoundFile(path) as file:
            rate = file.samplerate
            begin, end = _part(recording, rate, file.frames)
            _check_length(path, (end - begin) / rate, longest_seconds)
            file.seek(begin)
            sound = file.read(end - begin, dtype="float32", always_2d=True)
    except (package.LibsndfileError, RuntimeError, TypeError):
        empty = not Path(path).stat().st_size
        what = "is empty" if empty else "not a recording that can be read: of another type, damaged or incomplete"
        raise AudioError(path, "broken", what) from None
    if len(sound) < end - begin:
        raise AudioError(path, "broken", f"the file is cut short: {len(sound):,} of {end - begin:,} samples are there")
    return sound, rate


def _part(recording: Recording, rate: int, frames: int) -> tuple[int, int]:
    """The first sample and the one after the last."""
    begin, end = round(recording.begin * rate), round(recording.end * rate) or frames
    if begin > frames or end > frames + rate // 10:  # manifests round times
        raise AudioError(
            recording.path,
            "broken",
            f"the part from {recording.begin:g} to {recording.end:g} s is beyond the end of the recording, {frames / rate:.2f} s",
        )
    return begin, max(begin, min(end, frames))


def _check_length(path: str, seconds: float, longest_seconds: float) -> None:
    if longest_seconds and seconds > longest_seconds:
        raise AudioError(
            path, "too long", f"the recording is too long: {seconds:.1f} s of at most {longest_seconds:g} s"
        )
