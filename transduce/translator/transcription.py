"""Transcripts: the text of a recording of any length, piece by piece, with times and confidences."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transduce.audio.files import read_samples
from transduce.audio.recording import Recording
from transduce.audio.silences import is_silent, pieces
from transduce.errors import DataError, SettingError
from transduce.translator.engine import SearchRequest
from transduce.translator.outputs import Translation
from transduce.translator.translator import Translator


@dataclass(frozen=True)
class Segment:
    """A piece of a recording with its text."""

    begin: float  # seconds
    end: float
    text: str
    confidence: float  # the mean probability of its tokens, as a geometric mean; 1 for silence


@dataclass(frozen=True)
class Transcript:
    """The text of a recording; `error` says why there is none."""

    file: str
    segments: list[Segment]
    error: str = ""

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments if segment.text)


def transcribe(
    translator: Translator, files: Iterable[str], request: SearchRequest | None = None
) -> Iterator[Transcript]:
    """The transcript of each file, in order; a file that cannot be used has an error instead of a text."""
    if not translator.hears:
        raise SettingError("this model translates text, not recordings: use `transduce translate`")
    for file in files:
        try:
            yield Transcript(file, _segments(translator, file, request or translator.request()))
        except DataError as error:
            yield Transcript(file, [], str(error))


def _segments(translator: Translator, file: str, request: SearchRequest) -> list[Segment]:
    recording = Recording.parse(file)
    samples = read_samples(recording)
    times = pieces(samples)
    heard = [piece for piece in times if not is_silent(samples, *piece)]
    sources = [str(Recording(recording.path, recording.begin + a, recording.begin + b)) for a, b in heard]
    if len(times) == 1:
        sources = [file] * len(heard)
    found = dict(zip(heard, translator.stream(sources, request), strict=True))
    return [_segment(*piece, found.get(piece)) for piece in times]


def _segment(begin: float, end: float, heard: Translation | None) -> Segment:
    if heard is None or not heard.outputs:
        return Segment(begin, end, "", 1.0)
    best = heard.outputs[0]
    return Segment(begin, end, best.text, math.exp(best.log_probability / max(1, best.length)))
