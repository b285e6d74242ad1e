"""The models of a server: found by name or language pair, and reloaded when their weights change.

A request keeps the model that it started with, so reloading drops no request. Knows no HTTP.
"""

import asyncio
import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from transduce.checkpoint import RunFolder, read_about
from transduce.documents import Splitter
from transduce.errors import RunError, SettingError
from transduce.server.background import in_thread
from transduce.server.metrics import Metrics
from transduce.server.refusals import NotFound
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator, better_weights, open_folder
from transduce.translator.split import splitter_of

_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([A-Za-z][A-Za-z0-9_]*)=(.+)")


@dataclass(frozen=True)
class Specification:
    """A model as the command line names it."""

    folder: Path
    name: str
    source: str  # language codes; empty if they are not known
    target: str

    @staticmethod
    def parse(text: str) -> "Specification":
        """Parse `en-de=RUN`, or `RUN`, whose settings contain its languages."""
        if named := _NAMED.fullmatch(text):
            source, target, folder = named.groups()
            open_folder(folder)
            return Specification(Path(folder), f"{source}-{target}", source, target)
        name, equals, folder = text.partition("=")
        if equals and not Path(text).exists():
            raise SettingError(f"{text}: the name {name!r} must be two language codes, as in en-de={folder}")
        languages = open_folder(text).config.data.languages
        source, target = languages or ("", "")
        return Specification(Path(text), "-".join(languages) or Path(text).resolve().name, source, target)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model with the weights that it had at the time."""

    of: Specification
    translator: Translator
    weights: str  # their hash
    splitter: Splitter
    lock: threading.Lock = field(default_factory=threading.Lock)  # for engines that serve a single thread at a time

    @staticmethod
    def load(of: Specification, loading: LoadOptions) -> "ServedModel":
        """Load a model and translate with it once, so that the first request reads nothing from its folder."""
        weights = fingerprint(of.folder, loading)
        translator = _warm(of, loading)
        return ServedModel(of, translator, weights, splitter_of(translator))

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
        return self.model.of.name, request.beam, request.n_best, request.length_penalty, request.figures

    def __call__(self, lines: list[str]) -> list[Translation]:
        return self.model.translate(lines, self.request)


class Models:
    """The models of a server by name."""

    def __init__(
        self, specifications: Sequence[Specification], loading: LoadOptions, metrics: Metrics, load_s: float
    ) -> None:
        for number, one in enumerate(specifications):
            if one.name in [other.name for other in specifications[:number]]:
                raise SettingError(
                    f"{one.folder}: another model is already named {one.name}; name this one as SOURCE-TARGET=RUN"
                )
        self.loading, self.metrics, self.load_s = loading, metrics, load_s
        self._failed: dict[str, str] = {}  # weights that could not be loaded: each is tried and reported once
        self._models = {one.name: load_within(load_s, one, loading) for one in specifications}

    @property
    def all(self) -> list[ServedModel]:
        return list(self._models.values())

    def named(self, name: str) -> ServedModel:
        """The model with this name; without a name, the only model of the server."""
        if not name and len(self._models) == 1:
            return self.all[0]
        if name not in self._models:
            raise NotFound(f"no such model; this server has: {', '.join(self._models)}")
        return self._models[name]

    def of_pair(self, source: str, target: str) -> ServedModel:
        for model in self.all:
            if source and (model.of.source, model.of.target) == (source, target):
                return model
        pairs = [f"{m.of.source} to {m.of.target}" for m in self.all if m.of.source]
        raise NotFound(
            f"this server does not translate this language pair; it translates: {', '.join(pairs) or 'none'}"
        )

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

    def refresh(self, model: ServedModel) -> None:
        """Replace a model whose weights have changed; if the new weights cannot be loaded, keep the old ones."""
        name, weights = model.of.name, "unreadable"
        try:
            weights = fingerprint(model.of.folder, self.loading)
            if weights == self._failed.get(name):
                return
            is_new = weights != model.weights
            if is_new:
                self._models[name] = ServedModel.load(model.of, self.loading)
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


def load_within(load_s: float, of: Specification, loading: LoadOptions) -> ServedModel:
    """Load a model; fail if that takes too long, for example because a network disk does not respond."""
    try:
        return in_thread(partial(ServedModel.load, of, loading)).result(load_s)
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


def fingerprint(folder: Path, loading: LoadOptions) -> str:
    """The hash of the weights, which is stored beside them; the weights are not read."""
    run = RunFolder(folder)
    which = better_weights(run) if loading.weights == "auto" else loading.weights
    return read_about(run.weights(which)).get("sha256", "")
