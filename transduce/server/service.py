"""The service behind the routes: translates, generates, transcribes and inspects models through the queue. Knows no HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from transduce.audio.uploads import UploadError, UploadLimits
from transduce.cores import available_cores
from transduce.documents import Document
from transduce.server.decoding import Decoder
from transduce.server.detection import Detected, Detector
from transduce.server.generation import Parts, ServedLanguageModel, generated
from transduce.server.keys import Keyring
from transduce.server.metrics import Metrics
from transduce.server.models import Models, ServedModel, TranslationWork
from transduce.server.queue import Queue
from transduce.server.refusals import NotFound, Overloaded, PayloadTooLarge, Refusal, UnsupportedType
from transduce.server.settings import ServerSettings
from transduce.server.specification import Specification
from transduce.server.transcription import (
    DecodingWork,
    ListeningWork,
    ServedSpeechModel,
    TranscriptionWork,
    WordTimesWork,
)
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator
from transduce.translator.split import normalized

if TYPE_CHECKING:
    from transduce.translator.generation import Generation, GenerationRequest
    from transduce.translator.transcription import RecordingPieces, Segment

Result = TypeVar("Result")
Inspect = Callable[[Translator], Any]  # returns something that JSON can represent

DETECTED_CHARACTERS = 1_000
DETECTOR_SHARE = 4  # a quarter of the requests at a time may wait for the detector to load
SHORT = 500  # characters: splitting so few takes less time than handing them to a thread
PREPARING_THREADS = 2


@dataclass(frozen=True)
class Translated:
    """A document and the translations of its sentences."""

    document: Document
    translations: list[Translation]

    @property
    def characters(self) -> int:
        """The characters of its sentences, counted once per output: writing the response takes time in proportion."""
        return sum(len(one.source) * len(one.outputs) for one in self.translations)

    def text(self, rank: int = 0) -> str:
        """The translated document, made of the outputs with this rank, or of the last one where there are fewer."""
        return self.document.rejoin(
            one.outputs[min(rank, len(one.outputs) - 1)].text if one.outputs else "" for one in self.translations
        )


@dataclass(frozen=True)
class Transcribed:
    """The segments of a recording, and how long it is."""

    seconds: float
    segments: "list[Segment]"
    listened: dict[int, dict[str, Any]]  # by the number of a segment: its tokens, and their attention over time

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments if segment.text)


@dataclass(frozen=True)
class PreparedTexts:
    """Documents, all their sentences, and the number of tokens of each sentence."""

    documents: list[Document]
    sentences: list[str]
    tokens: list[int]


@dataclass(frozen=True, eq=False)
class InspectionWork:
    """Work for the queue that inspects a model and returns JSON. It shares no batch, and serialising it takes time too."""

    model: ServedModel
    inspect: Inspect

    @property
    def alone(self) -> ServedModel:
        return self.model

    @property
    def kind(self) -> tuple[object, ...]:
        return self.model.of.name, "inspect"

    def __call__(self, lines: list[str]) -> list[bytes]:
        with self.model.lock:
            seen = self.inspect(self.model.translator)
        return [json.dumps(seen, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()]


class Service:
    """A server without HTTP."""

    def __init__(self, settings: ServerSettings, models: Models, metrics: Metrics) -> None:
        self.settings, self.models, self.metrics = settings, models, metrics
        self.keys = Keyring.read(settings.keys, settings.replicas)
        self.queue = Queue(settings, metrics, models.loading.threads or available_cores())
        self.detector = Detector()
        self.decoder = Decoder(UploadLimits(settings.audio_seconds, settings.audio_types), settings.request_s)
        self._detector_waiters = asyncio.Semaphore(max(1, settings.queue_requests // DETECTOR_SHARE))
        self._preparing = ThreadPoolExecutor(PREPARING_THREADS, "preparing")

    @staticmethod
    def load(settings: ServerSettings, specifications: Sequence[Specification], loading: LoadOptions) -> "Service":
        metrics = Metrics()
        return Service(settings, Models(specifications, loading, metrics, settings.load_s), metrics)

    async def translate(
        self, model: ServedModel, texts: Sequence[str], request: SearchRequest, *, is_html: bool = False
    ) -> list[Translated]:
        """Translate texts sentence by sentence; all their sentences are one job of the queue."""
        self._check(texts)
        self.metrics.characters.labels(model.of.name).inc(sum(map(len, texts)))
        prepared = await self.off_loop(partial(self._prepare, model, texts, is_html), sum(map(len, texts)))
        searching = TranslationWork(model, request)
        found: list[Translation] = await self.queue.answer(searching, prepared.sentences, prepared.tokens)
        check_outputs(found)
        answers = iter(found)
        return [Translated(document, [next(answers) for _ in document.sentences]) for document in prepared.documents]

    async def prepare_generation(
        self, model: ServedLanguageModel, prompt: str, request: "GenerationRequest"
    ) -> "Generation":
        """A generation that has not begun; refused if it is too large."""
        self._check([prompt])
        tokens, most = request.n * request.max_tokens, self.settings.generated_tokens
        if tokens > most:
            raise PayloadTooLarge(f"n x max_tokens = {tokens:,}; a request may generate at most {most:,} tokens")
        self.metrics.characters.labels(model.of.name).inc(len(prompt))
        return await self.off_loop(partial(model.model.generation, prompt, request), len(prompt))

    async def generate(self, model: ServedLanguageModel, generation: "Generation") -> AsyncGenerator[Parts, None]:
        """What the texts grow by, as it is generated; closing the iterator drops the rest."""
        try:
            async with aclosing(generated(self.queue, model, generation)) as steps:
                async for parts in steps:
                    yield parts
        finally:
            self.metrics.generated_tokens.labels(model.of.name).inc(sum(text.tokens for text in generation.texts))

    async def transcribe(
        self,
        model: ServedSpeechModel,
        recording: bytes,
        request: SearchRequest,
        *,
        words: bool = False,
        attention: bool = False,
    ) -> Transcribed:
        """Decode a recording and transcribe its pieces; they are one job of the queue."""
        data = model.translator.config.data
        decoded = await self._decode(recording, data.trim_quiet, data.piece_seconds)
        if attention and decoded.seconds > (most := self.settings.inspected_seconds):
            raise PayloadTooLarge(
                f"the recording lasts {decoded.seconds:.1f} s; attention is shown for at most {most:g} s"
            )
        self.metrics.audio_seconds.labels(model.of.name).inc(decoded.seconds)
        utterances = decoded.features
        costs = [float(len(utterance)) for utterance in utterances]
        found: list[Translation] = await self.queue.answer(TranscriptionWork(model, request), utterances, costs)
        segments = decoded.segments(found)
        if words:
            spoken = decoded.spoken(segments)
            times = await self.queue.answer(WordTimesWork(model), spoken, [float(len(one)) for one, _ in spoken])
            segments = decoded.with_words(segments, times)
        return Transcribed(
            decoded.seconds, segments, await self._listened(model, decoded, segments) if attention else {}
        )

    async def _listened(
        self, model: ServedSpeechModel, decoded: "RecordingPieces", segments: "list[Segment]"
    ) -> dict[int, dict[str, Any]]:
        """The attention of the decoder over time, for each segment that holds sound."""
        pairs = [(one.features, segments[one.piece].text) for one in decoded.utterances]
        found = await self.queue.answer(ListeningWork(model), pairs, [float(len(features)) for features, _ in pairs])
        return {
            one.piece: {"begin": one.begin, "end": one.end} | listened
            for one, listened in zip(decoded.utterances, found, strict=True)
        }

    async def _decode(self, recording: bytes, trim_quiet: float, piece_seconds: float) -> "RecordingPieces":
        if len(recording) > (most := self.settings.audio_bytes):
            raise PayloadTooLarge(f"the recording has {len(recording):,} bytes; at most {most:,} are accepted")
        work = DecodingWork(self.decoder, trim_quiet, piece_seconds)
        kinds = {"type": UnsupportedType, "too long": PayloadTooLarge}
        try:
            answers: list[RecordingPieces] = await self.queue.answer(work, [recording], [len(recording) / 1_000])
        except UploadError as error:
            raise kinds.get(error.reason, Refusal)(str(error)) from None
        return answers[0]

    def close(self) -> None:
        """Stop all threads and processes. Call it when no request is waiting."""
        self.detector.close()
        self.decoder.close()
        self._preparing.shutdown(wait=False, cancel_futures=True)
        self.queue.close()

    async def inspect(self, model: ServedModel, texts: Sequence[str], inspect: Inspect) -> bytes:
        """The JSON of what `inspect` returns for the model; the texts it reads must be short."""
        self._check(texts)
        tokens = await self.off_loop(partial(self._check_small, model, texts), sum(map(len, texts)))
        answers: list[bytes] = await self.queue.answer(InspectionWork(model, inspect), [texts[0]], [tokens])
        return answers[0]

    async def detect(self, text: str) -> list[Detected]:
        """The likeliest languages of a text, judged by its first thousand characters."""
        self._check([text])
        self.detector.check_installed()
        await self._detector_ready()
        answers: list[list[Detected]] = await self.queue.answer(self.detector, [text[:DETECTED_CHARACTERS]])
        return answers[0]

    async def _detector_ready(self) -> None:
        """Wait until lingua has loaded its models, without occupying a worker of the queue.

        Only some requests may wait, so that the others find room in the queue.
        """
        still_loading = Overloaded("the language detector is still loading: try again later", retry_after_s=10)
        starting = self.detector.start()
        if starting.done():
            starting.result()
            return
        if self._detector_waiters.locked():
            raise still_loading
        async with self._detector_waiters:
            try:
                await asyncio.wait_for(asyncio.wrap_future(starting), self.settings.request_s)
            except TimeoutError:
                raise still_loading from None

    async def off_loop(self, task: Callable[[], Result], characters: int) -> Result:
        """The result of a task over so many characters; a long one runs in a thread, so that other requests go on."""
        if characters <= SHORT:
            return task()
        return await asyncio.get_running_loop().run_in_executor(self._preparing, task)

    def _prepare(self, model: ServedModel, texts: Sequence[str], is_html: bool) -> PreparedTexts:
        """Split texts into sentences and count their tokens; some characters become many tokens."""
        characters = sum(len(normalized(text)) for text in texts)
        if characters > (most := self.settings.characters):
            raise PayloadTooLarge(
                f"the texts have {characters:,} characters after normalisation (NFKC); a request may have at most {most:,}"
            )
        split = model.splitter.html if is_html else model.splitter.text
        documents = [split(text) for text in texts]
        sentences = [sentence for document in documents for sentence in document.sentences]
        return PreparedTexts(documents, sentences, [*map(len, model.translator.vocabularies.source.encode(sentences))])

    def _check_small(self, model: ServedModel, texts: Sequence[str]) -> int:
        """Refuse texts that are too long to inspect; return the tokens of the longest."""
        most, most_tokens = self.settings.inspected_characters, self.settings.inspected_tokens
        longest = max(map(len, texts))
        if not texts[0].strip():
            raise NotFound("the text consists of spaces only: there is nothing to show")
        if longest > most:
            raise PayloadTooLarge(f"the text has {longest:,} characters; this route accepts at most {most:,}")
        both = model.translator.vocabularies
        tokens = max(map(len, both.source.encode(texts[:1]) + both.target.encode(texts[1:])))
        if tokens > most_tokens:
            raise PayloadTooLarge(f"the text has {tokens} tokens; this route accepts at most {most_tokens}")
        return tokens

    def _check(self, texts: Sequence[str]) -> None:
        characters = sum(map(len, texts))
        if len(texts) > self.settings.texts:
            raise PayloadTooLarge(f"the request has {len(texts):,} texts; at most {self.settings.texts:,} are allowed")
        if characters > self.settings.characters:
            most = self.settings.characters
            raise PayloadTooLarge(f"the texts have {characters:,} characters; a request may have at most {most:,}")
        for number, text in enumerate(texts, 1):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Refusal(f"text {number} is not valid Unicode: it contains half a surrogate pair") from None


def check_outputs(translations: Sequence[Translation]) -> None:
    """Refuse a request if the search found no output for a sentence, rather than return an empty translation."""
    missing = sum(not one.outputs and bool(one.source.strip()) for one in translations)
    if missing:
        raise Refusal(
            f"the search found no output for {missing} of {len(translations)} sentences: try other search settings"
        )
