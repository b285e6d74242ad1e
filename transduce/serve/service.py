"""What handlers work with: documents to translations, and a look inside a model, through the one queue. Knows no routes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.serve.detection import Detected, Detector
from transduce.serve.keys import Keyring
from transduce.serve.metrics import Metrics
from transduce.serve.models import Model, Models, Searching, Specification
from transduce.serve.queue import Queue
from transduce.serve.refusals import Refusal, TooMuch, Unknown
from transduce.serve.settings import Settings
from transduce.serve.splitting import Document
from transduce.translator import Loading, Request, Translation, Translator

Look = Callable[[Translator], Any]  # gives something that JSON can say

DETECTED_CHARACTERS = 1_000


@dataclass(frozen=True)
class Translated:
    """A document and what became of its sentences."""

    document: Document
    translations: list[Translation]

    def text(self, rank: int = 0) -> str:
        """The document again, of each sentence's output of this rank, or the last there is."""
        return self.document.rejoin(
            one.outputs[min(rank, len(one.outputs) - 1)].text if one.outputs else "" for one in self.translations
        )


@dataclass(frozen=True, eq=False)
class Looking:
    """Work for the queue that is nobody else's: a look inside a model, as JSON since making that takes time too."""

    model: Model
    look: Look

    @property
    def alone(self) -> Model:
        return self.model

    def __call__(self, lines: list[str]) -> list[bytes]:
        with self.model.lock:
            seen = self.look(self.model.translator)
        return [json.dumps(seen, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()]


class Service:
    """A server without its HTTP."""

    def __init__(self, settings: Settings, models: Models, metrics: Metrics) -> None:
        self.settings, self.models, self.metrics = settings, models, metrics
        self.keys = Keyring.read(settings.keys)
        self.queue = Queue(settings, metrics)
        self.detector = Detector()

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
        split = model.splitter.html if is_html else model.splitter.text
        documents = [split(text) for text in texts]
        sentences = [sentence for document in documents for sentence in document.sentences]
        found: list[Translation] = await self.queue.answer(Searching(model, request), sentences)
        check_outputs(found)
        answers = iter(found)
        return [Translated(document, [next(answers) for _ in document.sentences]) for document in documents]

    async def look(self, model: Model, texts: Sequence[str], look: Look) -> bytes:
        """What a look inside the model with these texts shows, as JSON."""
        self._check(texts)
        self._check_small(model, texts)
        answers: list[bytes] = await self.queue.answer(Looking(model, look), [texts[0]])
        return answers[0]

    async def detect(self, text: str) -> list[Detected]:
        """The likeliest languages of a text; its beginning is enough to tell."""
        self._check([text])
        answers: list[list[Detected]] = await self.queue.answer(self.detector, [text[:DETECTED_CHARACTERS]])
        return answers[0]

    def _check_small(self, model: Model, texts: Sequence[str]) -> None:
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
