"""Transcripts: the text of a recording of any length, piece by piece, with times and confidences."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transduce.audio.features import RATE
from transduce.audio.files import read_samples
from transduce.audio.recording import Recording
from transduce.audio.silences import LONGEST_SECONDS, holds_sound, noise_of, pieces, without_quiet_ends
from transduce.audio.utterances import Features, features_of
from transduce.errors import DataError, SettingError
from transduce.translator.engine import SearchRequest
from transduce.translator.outputs import Translation
from transduce.translator.translator import Translator
from transduce.translator.word_times import Word, words_of

Times = tuple[float, float]  # where a piece begins and ends, in seconds


@dataclass(frozen=True)
class Segment:
    """A piece of a recording with its text."""

    begin: float  # seconds
    end: float
    text: str
    confidence: float  # the mean probability of its tokens, as a geometric mean; 1 for silence
    words: tuple[Word, ...] = ()  # if asked for; times are those of the recording


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
    translator: Translator, files: Iterable[str], request: SearchRequest | None = None, *, words: bool = False
) -> Iterator[Transcript]:
    """The transcript of each file, in order; a file that cannot be used has an error instead of a text.

    Args:
        translator: A speech model.
        files: Recordings, or parts of them (`talk.flac#t=10,20`).
        request: Search settings; by default those that the model was trained with.
        words: Whether segments have the times and confidences of their words, which needs a model with a CTC output.
    """
    if not translator.reads_speech:
        raise SettingError("this model translates text, not recordings: use `transduce translate`")
    for file in files:
        try:
            yield Transcript(file, _segments(translator, file, request or translator.request(), words))
        except DataError as error:
            yield Transcript(file, [], str(error))
        except (MemoryError, RuntimeError) as error:  # the next recording may be shorter, or harmless
            yield Transcript(file, [], f"{file}: cannot be transcribed: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What torch or Python complain about, in one line."""
    said = str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in said:
        return f"out of memory ({said}): transcribe parts of it, such as talk.flac#t=0,600, or use a smaller beam"
    return f"{type(error).__name__}: {said}"


def _segments(translator: Translator, file: str, request: SearchRequest, words: bool) -> list[Segment]:
    data = translator.config.data
    recording = RecordingPieces.of(read_samples(Recording.parse(file)), data.trim_quiet, data.piece_seconds)
    segments = recording.segments(translator.transcribe(recording.features, request))
    if not words:
        return segments
    return recording.with_words(segments, [words_of(translator, *pair) for pair in recording.spoken(segments)])


@dataclass(frozen=True)
class Utterance:
    """What a model reads of a piece that holds sound."""

    piece: int  # its number among all pieces
    begin: float  # seconds; later than that of the piece if quiet ends are removed
    end: float
    features: Features


@dataclass(frozen=True)
class RecordingPieces:
    """A recording in pieces that a model can transcribe."""

    seconds: float
    times: list[Times]  # of all pieces
    utterances: list[Utterance]  # of the pieces that hold any sound

    @staticmethod
    def of(samples: Tensor, trim_quiet: float = 0.0, longest_seconds: float = LONGEST_SECONDS) -> "RecordingPieces":
        """The pieces of samples at 16 kHz; `trim_quiet` and the length of a piece are settings of the model's data."""
        times = pieces(samples, longest_seconds)
        noise = noise_of(samples) if len(times) > 1 else 0.0
        audible = [(number, piece) for number, piece in enumerate(times) if holds_sound(_part(samples, piece), noise)]
        sounds = [(number, _sound(samples, piece, trim_quiet, noise)) for number, piece in audible]
        utterances = [Utterance(number, *sound, features_of(_part(samples, sound))) for number, sound in sounds]
        return RecordingPieces(len(samples) / RATE, times, utterances)

    @property
    def features(self) -> list[Features]:
        """Those of the utterances."""
        return [one.features for one in self.utterances]

    def segments(self, found: Sequence[Translation]) -> list[Segment]:
        """All pieces with their texts; `found` are those of the utterances."""
        texts = {one.piece: text for one, text in zip(self.utterances, found, strict=True)}
        return [_segment(*times, texts.get(number)) for number, times in enumerate(self.times)]

    def spoken(self, segments: Sequence[Segment]) -> list[tuple[Features, str]]:
        """The features of the utterances that have a text, with their texts."""
        return [(one.features, segments[one.piece].text) for one in self._spoken(segments)]

    def with_words(self, segments: Sequence[Segment], found: Iterable[Sequence[Word]]) -> list[Segment]:
        """The same segments with their words; `found` are those of what is `spoken`."""
        spoken = zip(self._spoken(segments), found, strict=True)
        timed = {one.piece: _with_words(segments[one.piece], words, one.begin) for one, words in spoken}
        return [timed.get(number, segment) for number, segment in enumerate(segments)]

    def _spoken(self, segments: Sequence[Segment]) -> list[Utterance]:
        return [one for one in self.utterances if segments[one.piece].text]


def _sound(samples: Tensor, piece: Times, trim_quiet: float, noise: float) -> Times:
    """Where the sound of a piece begins and ends."""
    first = round(piece[0] * RATE)
    inner = without_quiet_ends(_part(samples, piece), trim_quiet, noise)
    return ((first + inner[0]) / RATE, (first + inner[1]) / RATE) if trim_quiet else piece


def _part(samples: Tensor, times: Times) -> Tensor:
    begin, end = times
    return samples[round(begin * RATE) : round(end * RATE)]


def _segment(begin: float, end: float, found: Translation | None) -> Segment:
    if found is None or not found.outputs:
        return Segment(begin, end, "", 1.0)
    best = found.outputs[0]
    return Segment(begin, end, best.text, math.exp(best.log_probability / max(1, best.length)))


def _with_words(segment: Segment, found: Sequence[Word], begin: float) -> Segment:
    """The segment with words whose times count from `begin`."""
    end = segment.end
    words = (replace(word, begin=min(end, begin + word.begin), end=min(end, begin + word.end)) for word in found)
    return replace(segment, words=tuple(words))
