"""Speech models of a server, and transcription as work for the queue: decoding first, then the pieces of a recording. Knows no HTTP."""

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transduce.audio.uploads import UploadError
from transduce.server.specification import Specification, fingerprint
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator

if TYPE_CHECKING:
    from transduce.audio.utterances import Features
    from transduce.server.decoding import Decoder
    from transduce.translator.transcription import RecordingPieces
    from transduce.translator.word_times import Word


@dataclass(frozen=True, eq=False)
class ServedSpeechModel:
    """A loaded model that transcribes recordings."""

    of: Specification
    translator: Translator
    weights: str
    lock: threading.Lock = field(default_factory=threading.Lock)  # its engine serves a single thread at a time

    DOES = "transcribes recordings"
    ROUTE = "/v1/transcribe"

    @staticmethod
    def load(of: Specification, loading: LoadOptions) -> "ServedSpeechModel":
        """Load a model and let it transcribe a second of noise, so that the first request reads nothing from its folder."""
        import torch

        from transduce.audio.features import RATE
        from transduce.audio.soundfiles import soundfile
        from transduce.audio.utterances import features_of

        soundfile()  # if it is missing, that is said now and not to the first client
        weights = fingerprint(of.folder, loading)
        translator = Translator.load(of.folder, loading)
        translator.transcribe([features_of(torch.randn(RATE))])
        return ServedSpeechModel(of, translator, weights)

    @property
    def description(self) -> str:
        return self.translator.config.model.description

    @property
    def knows_times(self) -> bool:
        """Whether it knows the times of words."""
        from transduce.translator.word_times import knows_times

        return knows_times(self.translator)


@dataclass(frozen=True)
class DecodingWork:
    """Work for the queue that decodes recordings; it may take longer than hearing them, so it has turns as well."""

    decoder: "Decoder"
    trim_quiet: float  # as the model learned it
    piece_seconds: float

    @property
    def alone(self) -> None:
        return None

    @property
    def kind(self) -> tuple[object, ...]:
        return "decode", self.trim_quiet, self.piece_seconds

    def __call__(self, recordings: list[bytes]) -> "list[RecordingPieces | UploadError]":
        return [self._decoded(one) for one in recordings]

    def _decoded(self, recording: bytes) -> "RecordingPieces | UploadError":
        """The pieces of a recording, or why it is refused: raised here, the error would let the whole batch be decoded again."""
        from transduce.translator.transcription import RecordingPieces

        try:
            samples = self.decoder(recording).resampled()
        except UploadError as error:
            return error
        return RecordingPieces.of(samples, self.trim_quiet, self.piece_seconds)


@dataclass(frozen=True)
class TranscriptionWork:
    """Work for the queue: pieces of recordings share batches if they go to the same model with equal requests."""

    model: ServedSpeechModel
    request: SearchRequest

    @property
    def alone(self) -> ServedSpeechModel:
        return self.model

    @property
    def kind(self) -> tuple[object, ...]:
        return self.model.of.name, "transcribe", self.request.beam

    def __call__(self, utterances: "list[Features]") -> list[Translation]:
        with self.model.lock:
            return self.model.translator.transcribe(utterances, self.request)


@dataclass(frozen=True)
class SpeechWork:
    """Work for the queue about utterances whose texts are known; it shares no batch with anything else."""

    model: ServedSpeechModel

    @property
    def alone(self) -> ServedSpeechModel:
        return self.model

    @property
    def kind(self) -> tuple[object, ...]:
        return self.model.of.name, type(self).__name__


class WordTimesWork(SpeechWork):
    """The words of each utterance, with their times."""

    def __call__(self, pairs: "list[tuple[Features, str]]") -> "list[list[Word]]":
        from transduce.translator.word_times import words_of

        with self.model.lock:
            return [words_of(self.model.translator, *pair) for pair in pairs]


class ListeningWork(SpeechWork):
    """The attention of the decoder and the emissions of CTC over time, for each utterance and its text."""

    def __call__(self, pairs: "list[tuple[Features, str]]") -> list[dict[str, Any]]:
        with self.model.lock:
            return [self._listened(*pair) for pair in pairs]

    def _listened(self, utterance: "Features", text: str) -> dict[str, Any]:
        seen = self.model.translator.listening(utterance, text)
        layers = seen.maps.cross
        mean: Any = sum(layer[0].double().mean(0) for layer in layers) / len(layers)
        weights = {"tokens": seen.written, "weights": mean.round(decimals=4).tolist()}
        return weights | {"ctc": self._emitted(utterance, text)}

    def _emitted(self, utterance: "Features", text: str) -> dict[str, Any] | None:
        from transduce.translator.word_times import ctc_alignment

        found = ctc_alignment(self.model.translator, utterance, text)
        probabilities = [round(one, 4) for one in found.probabilities()] if found else []
        return {"emitted": found.emitted(), "probabilities": probabilities} if found else None
