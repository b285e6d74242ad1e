"""The models of a server, of any kind: found by name or language pair, and reloaded when their weights change.

A request keeps the model that it started with, so reloading drops no request. Knows no HTTP.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from transduce.documents import Splitter
from transduce.errors import RunError, SettingError
from transduce.server.background import in_thread
from transduce.server.generation import ServedLanguageModel
from transduce.server.metrics import Metrics
from transduce.server.refusals import NotFound, Refusal
from transduce.server.specification import Specification, check_words, fingerprint
from transduce.server.transcription import ServedSpeechModel
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator
from transduce.translator.split import splitter_of

M = TypeVar("M", bound="AnyModel")

WITHOUT_LANGUAGES = (
    "send texts to POST /v1/translate; for /translate and /languages, restart the server and name the "
    "languages of the model, as in el-ipa=RUN"
)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model that translates text."""

    of: Specification
    translator: Translator
    weights: str  # their hash
    splitter: Splitter
    lock: threading.Lock = field(default_factory=threading.Lock)  # for engines that serve a single thread at a time

    DOES = "translates text"
    ROUTE = "/v1/translate"

    @staticmethod
    def load(of: Specification, loading: LoadOptions) -> "ServedModel":
        """Load a model and translate with it once, so that the first request reads nothing from its folder."""
        weights = fingerprint(of.folder, loading)
        translator = _warm(of, loading)
        return ServedModel(of, translator, weights, splitter_of(translator))

    @property
    def description(self) -> str:
        return self.translator.config.model.description

    def translate(self, lines: list[str], request: SearchRequest) -> list[Translation]:
        with nullcontext() if self.serves_several(request) else self.lock:
            return list(self.translator.stream(lines, request))

    def serves_several(self, request: SearchRequest) -> bool:
        """Whether several threads may translate with this request at the same time."""
        return self.translator.engines.concurrent(request)


@dataclass(frozen=True)
class TranslationWork:
    """Work for the queue: equal search requests to the same model share batches."""

    model: ServedModel
    request: SearchRequest

    @property
    def alone(self) -> ServedModel | None:
        return None if self.model.serves_several(self.request) else self.model

    @property
    def kind(self) -> tuple[object, ...]:
        request = self.request
        return self.model.of.name, request.beam, request.n_best, request.length_penalty, request.log_probs

    def __call__(self, lines: list[str]) -> list[Translation]:
        return self.model.translate(lines, self.request)


AnyModel = ServedModel | ServedSpeechModel | ServedLanguageModel


class Models:
    """The models of a server by name."""

    def __init__(
        self, specifications: Sequence[Specification], loading: LoadOptions, metrics: Metrics, load_s: float
    ) -> None:
        for number, one in enumerate(specifications):
            if one.name in [other.name for other in specifications[:number]]:
                raise SettingError(
                    f"{one.folder}: another model is already named {one.name}; name this one as {_naming(one)}"
                )
        check_words(specifications, loading)
        self.loading, self.metrics, self.load_s = loading, metrics, load_s
        self._failed: dict[str, str] = {}  # weights that could not be loaded: each is tried and reported once
        self._models: dict[str, AnyModel] = {one.name: load_within(load_s, one, loading) for one in specifications}

    @property
    def all(self) -> list[AnyModel]:
        return list(self._models.values())

    @property
    def translating(self) -> list[ServedModel]:
        return [model for model in self.all if isinstance(model, ServedModel)]

    def named(self, name: str) -> ServedModel:
        """The model with this name that translates text."""
        return self._of_kind(ServedModel, name)

    def speech(self, name: str) -> ServedSpeechModel:
        """The model with this name that transcribes speech."""
        return self._of_kind(ServedSpeechModel, name)

    def language_model(self, name: str) -> ServedLanguageModel:
        """The model with this name that generates text."""
        return self._of_kind(ServedLanguageModel, name)

    def speech_for_openai(self, name: str) -> ServedSpeechModel:
        """The speech model with this name, or the only one."""
        return self._for_openai(ServedSpeechModel, name)

    def language_model_for_openai(self, name: str) -> ServedLanguageModel:
        """The language model with this name, or the only one."""
        return self._for_openai(ServedLanguageModel, name)

    def of_any_kind(self, name: str) -> AnyModel:
        """The model with this name; without a name, the only model of the server."""
        if not name and len(self._models) == 1:
            return self.all[0]
        if name not in self._models:
            raise NotFound(f"no such model; this server has: {', '.join(self._models)}")
        return self._models[name]

    def _for_openai(self, kind: type[M], name: str) -> M:
        """OpenAI's clients always name a model, often one of OpenAI's: where no choice is left, an unknown name is ignored."""
        only = sum(isinstance(model, kind) for model in self.all) == 1
        return self._of_kind(kind, "" if only and name not in self._models else name)

    def _of_kind(self, kind: type[M], name: str) -> M:
        """The model with this name, refused if it is of another kind; without a name, the only model of this kind."""
        of_kind = [model for model in self.all if isinstance(model, kind)]
        if not name and len(of_kind) == 1:
            return of_kind[0]
        model = self.of_any_kind(name)
        if not isinstance(model, kind):
            raise Refusal(f"{model.of.name} {model.DOES}: send requests for it to {model.ROUTE}")
        return model

    def of_pair(self, source: str, target: str) -> ServedModel:
        for model in self.translating:
            if source and (model.of.source, model.of.target) == (source, target):
                return model
        pairs = [f"{m.of.source} to {m.of.target}" for m in self.translating if m.of.source]
        if pairs or not self.translating:
            raise NotFound(
                f"this server does not translate this language pair; it translates: {', '.join(pairs) or 'none'}"
            )
        raise NotFound(f"no model of this server has languages: {WITHOUT_LANGUAGES}")

    async def watch(self, every_s: float) -> None:
        """Check every folder for new weights until cancelled; one that hangs does not delay the others."""
        await asyncio.gather(*(self._watch_one(name, every_s) for name in self._models))

    async def _watch_one(self, name: str, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            model = self._models[name]
            refreshing = asyncio.wrap_future(in_thread(partial(self.refresh, model)))
            done, _ = await asyncio.wait([refreshing], timeout=self.load_s)
            if not done:
                self.metrics.reloads.labels(name, "failed").inc()
                self.loading.say(
                    f"{model.of.folder}: not loaded within {self.load_s:g} s; {name} keeps its old weights for now"
                )
                await refreshing  # a thread cannot be stopped, and another one would hang as well

    def refresh(self, model: AnyModel) -> None:
        """Replace a model whose weights have changed; if the new weights cannot be loaded, keep the old ones."""
        name, weights = model.of.name, "unreadable"
        try:
            weights = fingerprint(model.of.folder, model.of.options(self.loading))
            if weights == self._failed.get(name):
                return
            is_new = weights != model.weights
            if is_new:
                self._models[name] = load_model(model.of, self.loading)
        except Exception as error:  # whatever it is, the server must go on
            if self._failed.get(name) != weights:
                self._failed[name] = weights
                self._report(name, "failed", f"keeps its old weights: {error}")
        else:
            self._failed.pop(name, None)  # should the weights that failed come back, they are tried again
            if is_new:
                self._report(name, "done", "loaded new weights")

    def _report(self, name: str, outcome: str, text: str) -> None:
        self.metrics.reloads.labels(name, outcome).inc()
        self.loading.say(f"{name}: {text}")


def load_model(of: Specification, loading: LoadOptions) -> AnyModel:
    """Load a model of any kind."""
    loading = of.options(loading)
    if of.kind == "speech":
        return ServedSpeechModel.load(of, loading)
    return ServedLanguageModel.load(of, loading) if of.kind == "language model" else ServedModel.load(of, loading)


def load_within(load_s: float, of: Specification, loading: LoadOptions) -> AnyModel:
    """Load a model; fail if that takes too long, for example because a network disk does not respond."""
    try:
        return in_thread(partial(load_model, of, loading)).result(load_s)
    except TimeoutError:
        raise RunError(f"{of.folder}: the model could not be loaded within {load_s:g} s") from None


def _warm(of: Specification, loading: LoadOptions) -> Translator:
    translator = Translator.load(of.folder, loading)
    if of.target in translator.target_languages:
        translator = translator.to(of.target)
    elif translator.config.data.tags:
        languages = translator.target_languages
        raise SettingError(
            f"{of.folder}: this model translates into {', '.join(languages)}: serve it as {of.source or 'en'}-{languages[0]}="
            f"{of.folder}, once for each language"
        )
    for lines in (["a"], ["a", "b"]):  # CTranslate2 prepares single lines and batches separately
        translator.translate(lines)
    return translator


def _naming(of: Specification) -> str:
    return "SOURCE-TARGET=RUN" if of.kind == "translation" else "NAME=RUN"
