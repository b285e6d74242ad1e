"""What handlers work with: documents to translations, and a look inside a model, through the one queue. Knows no routes."""

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from transduce.cores import available_cores
from transduce.server.detection import Detected, Detector
from transduce.server.keys import Keyring
from transduce.server.metrics import Metrics
from transduce.server.models import Model, Models, Searching, Specification, normalized
from transduce.server.queue import Queue
from transduce.server.refusals import Refusal, TooMuch, Unknown
from transduce.server.settings import Settings
from transduce.server.splitting import Document
from transduce.translator import Loading, Request, Translation, Translator

Result = TypeVar("Result")
Look = Callable[[Translator], Any]  # gives something that JSON can say

DETECTED_CHARACTERS = 1_000
AT_ONCE = 500  # characters that are split and counted in less time than a thread takes to begin
PREPARING = 2  # threads


@dataclass(frozen=True)
class Translated:
    """A document and what became of its sentences."""

    document: Document
    translations: list[Translation]

    @property
    def characters(self) -> int:
        """Of its sentences, once for each output: putting together an answer takes time in proportion to this."""
        return sum(len(one.source) * len(one.outputs) for one in self.translations)

    def text(self, rank: int = 0) -> str:
        """The document again, of each sentence's output of this rank, or the last there is."""
        return self.document.rejoin(
            one.outputs[min(rank, len(one.outputs) - 1)].text if one.outputs else "" for one in self.translations
        )


@dataclass(frozen=True)
class Prepared:
    """Documents, all their sentences, and how many tokens each of these has."""

    documents: list[Document]
    sentences: list[str]
    tokens: list[int]


@dataclass(frozen=True, eq=False)
class Looking:
    """Work for the queue that is nobody else's: a look inside a model, as JSON since making that takes time too."""

    model: Model
    look: Look

    @property
    def alone(self) -> Model:
        return self.model

    @property
    def kind(self) -> tuple[object, ...]:
        return self.model.of.name, "look"

    def __call__(self, lines: list[str]) -> list[bytes]:
        with self.model.lock:
            seen = self.look(self.model.translator)
        return [json.dumps(seen, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()]


class Service:
    """A server without its HTTP."""

    def __init__(self, settings: Settings, models: Models, metrics: Metrics) -> None:
        self.settings, self.models, self.metrics = settings, models, metrics
        self.keys = Keyring.read(settings.keys)
        self.queue = Queue(settings, metrics, models.loading.threads or available_cores())
        self.detector = Detector()
        self._preparing = ThreadPoolExecutor(PREPARING, "preparing")

    @staticmethod
    def load(settings: Settings, specifications: Sequence[Specification], loading: Loading) -> "Service":
        metrics = Metrics()
        return Service(settings, Models(specifications, loading, metrics, settings.load_s), metrics)

    async def translate(
        self, model: Model, texts: Sequence[str], request: Request, *, is_html: bool = False
    ) -> list[Translated]:
        """Each text's sentences, all of them one job of the queue."""
        self._check(texts)
        self.metrics.characters.labels(model.of.name).inc(sum(map(len, texts)))
        prepared = await self.aside(partial(self._prepare, model, texts, is_html), sum(map(len, texts)))
        searching = Searching(model, request)
        found: list[Translation] = await self.queue.answer(searching, prepared.sentences, prepared.tokens)
        check_outputs(found)
        answers = iter(found)
        return [Translated(document, [next(answers) for _ in document.sentences]) for document in prepared.documents]

    def close(self) -> None:
        """Call when nobody waits any more."""
        self._preparing.shutdown(wait=False, cancel_futures=True)
        self.queue.close()

    async def look(self, model: Model, texts: Sequence[str], look: Look) -> bytes:
        """What a look inside the model with these texts shows, as JSON."""
        self._check(texts)
        tokens = await self.aside(partial(self._check_small, model, texts), sum(map(len, texts)))
        answers: list[bytes] = await self.queue.answer(Looking(model, look), [texts[0]], [tokens])
        return answers[0]

    async def detect(self, text: str) -> list[Detected]:
        """The likeliest languages of a text; its beginning is enough to tell."""
        self._check([text])
        answers: list[list[Detected]] = await self.queue.answer(self.detector, [text[:DETECTED_CHARACTERS]])
        return answers[0]

    async def aside(self, task: Callable[[], Result], characters: int) -> Result:
        """What a task over so many characters gives, without keeping others from being answered meanwhile."""
        if characters <= AT_ONCE:
            return task()
        return await asyncio.get_running_loop().run_in_executor(self._preparing, task)

    def _prepare(self, model: Model, texts: Sequence[str], is_html: bool) -> Prepared:
        """The sentences of texts, and how many tokens each really has: some characters become many."""
        characters = sum(len(normalized(text)) for text in texts)
        if characters > (most := self.settings.characters):
            raise TooMuch(
                f"the texts of a request have at most {most:,} characters; these have {characters:,} once normalised (NFKC)"
            )
        split = model.splitter.html if is_html else model.splitter.text
        documents = [split(text) for text in texts]
        sentences = [sentence for document in documents for sentence in document.sentences]
        return Prepared(documents, sentences, [*map(len, model.translator.vocabularies.source.encode(sentences))])

    def _check_small(self, model: Model, texts: Sequence[str]) -> int:
        """The tokens of the longest of these texts, which must be few."""
        most, most_tokens = self.settings.inspected_characters, self.settings.inspected_tokens
        longest = max(map(len, texts))
        if not texts[0].strip():
            raise Unknown("there is nothing to see in a text of spaces")
        if longest > most:
            raise TooMuch(f"a text to look into has at most {most:,} characters; this one has {longest:,}")
        both = model.translator.vocabularies
        tokens = max(map(len, both.source.encode(texts[:1]) + both.target.encode(texts[1:])))
        if tokens > most_tokens:
            raise TooMuch(f"a text to look into has at most {most_tokens} tokens; this one has {tokens}")
        return tokens

    def _check(self, texts: Sequence[str]) -> None:
        characters = sum(map(len, texts))
        if len(texts) > self.settings.texts:
            raise TooMuch(f"a request has at most {self.settings.texts:,} texts; this one has {len(texts):,}")
        if characters > self.settings.characters:
            most = self.settings.characters
            raise TooMuch(f"the texts of a request have at most {most:,} characters; these have {characters:,}")
        for number, text in enumerate(texts, 1):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Refusal(f"text {number} holds half a surrogate pair: it is no valid Unicode") from None


def check_outputs(translations: Sequence[Translation]) -> None:
    """Refuse to pass off a sentence for which the search found nothing as one whose translation is empty."""
    missing = sum(not one.outputs and bool(one.source.strip()) for one in translations)
    if missing:
        raise Refusal(f"no output was found for {missing} of {len(translations)} sentences: try other search settings")
