"""Recordings as samples: any file that libsndfile reads (wav, flac, ogg, opus, mp3), at 16 kHz, with one channel.

Every error is one line that names the file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.audio.features import RATE
from transduce.audio.recording import Recording
from transduce.audio.resampling import resample
from transduce.audio.soundfiles import LOUDEST, LOWEST_RATE, SHORTEST_SECONDS, AudioError, soundfile
from transduce.audio.truncation import truncation

UNREADABLE = "cannot be decoded: it is damaged, or not wav, flac, ogg, opus or mp3 (`ffmpeg -i FILE FILE.flac` converts other types)"


def read_samples(recording: Recording, longest_seconds: float = 0.0) -> Tensor:
    """The samples of a recording, with the mean of its channels; `longest_seconds` of 0 means that any length is read."""
    sound, rate = _read(recording, longest_seconds)
    samples = torch.from_numpy(sound).mean(1)
    if not bool((samples.abs() <= LOUDEST).all()):
        raise AudioError(
            recording, "broken", "the recording has samples that are NaN, infinite or far beyond full scale"
        )
    return resample(samples, rate, RATE)


def check_header(recording: Recording) -> None:
    """Refuse a recording whose header shows that it cannot be used; its samples are not read, which takes twenty times as long."""
    with _opened(recording) as file:
        begin, end = _part(recording, file.samplerate, file.frames)
        _check_shortest(recording, end - begin, file.samplerate)


def _read(recording: Recording, longest_seconds: float) -> tuple[Any, int]:
    with _opened(recording) as file:
        rate = file.samplerate
        begin, end = _part(recording, rate, file.frames)
        _check_longest(recording, (end - begin) / rate, longest_seconds)
        file.seek(begin)
        sound = file.read(end - begin, dtype="float32", always_2d=True)
    if len(sound) < end - begin:
        message = f"the file is cut short: {len(sound):,} of {end - begin:,} samples are there"
        raise AudioError(recording, "broken", message)
    _check_shortest(recording, len(sound), rate)
    return sound, rate


@contextmanager
def _opened(recording: Recording) -> Iterator[Any]:
    """The recording's file; errors while it is open are those of a file that cannot be read."""
    package, path = soundfile(), Path(recording.path)
    if path.is_dir():
        raise AudioError(recording, "unreadable", "is a folder, not a recording")
    if not path.exists():
        raise AudioError(recording, "missing", "no such file")
    if not path.is_file():
        raise AudioError(
            recording, "unreadable", "is a pipe or a device: `transduce transcribe RUN -` reads standard input"
        )
    if not os.access(path, os.R_OK):
        raise AudioError(recording, "unreadable", "cannot be read: permission denied")
    _check_whole(recording)  # first: libmpg123 warns of a truncated mp3 while it is opened
    try:
        with package.SoundFile(recording.path if os.name == "nt" else os.fsencode(recording.path)) as file:
            if file.samplerate < LOWEST_RATE:
                message = (
                    f"its header gives a sampling rate of {file.samplerate:,} Hz; the lowest is {LOWEST_RATE:,} Hz"
                )
                raise AudioError(recording, "broken", message)
            yield file
    except (package.LibsndfileError, RuntimeError, TypeError):
        what = UNREADABLE if path.stat().st_size else "is empty"
        raise AudioError(recording, "broken", what) from None


def _check_whole(recording: Recording) -> None:
    """Refuse a file that ends too early, even for a part that is there: whatever cut it short should be noticed."""
    with Path(recording.path).open("rb") as file:
        if missing := truncation(file):
            raise AudioError(recording, "broken", f"the file is cut short: {missing}")


def _part(recording: Recording, rate: int, frames: int) -> tuple[int, int]:
    """The first sample and the one after the last."""
    if 0 < recording.end <= recording.begin:
        raise AudioError(recording, "beyond the end", f"the part from {_times(recording)} ends before it begins")
    begin, end = round(recording.begin * rate), round(recording.end * rate) or frames
    if begin > frames or end > frames + rate // 10:  # manifests round times
        raise AudioError(
            recording,
            "beyond the end",
            f"the part from {_times(recording)} is beyond the end of the recording, {frames / rate:.2f} s",
        )
    return begin, max(begin, min(end, frames))


def _times(recording: Recording) -> str:
    return f"{recording.begin:g} to {recording.end:g} s" if recording.end else f"{recording.begin:g} s to the end"


def _check_longest(recording: Recording, seconds: float, longest_seconds: float) -> None:
    if longest_seconds and seconds > longest_seconds:
        message = f"the recording is too long: {seconds:.1f} s of at most {longest_seconds:g} s"
        raise AudioError(recording, "too long", message)


def _check_shortest(recording: Recording, samples: int, rate: int) -> None:
    if not samples:
        raise AudioError(recording, "empty", "the recording is empty: it has no samples")
    if samples < SHORTEST_SECONDS * rate:
        raise AudioError(recording, "too short", f"the recording is too short: {1000 * samples / rate:.0f} ms")
