"""The models of a server: by name, by pair of languages, and new ones in their place when their weights change.

A request keeps the model it began with, so nothing is dropped when another takes its place. Knows no HTTP.
"""

import asyncio
import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from transduce.checkpoint import RunFolder, read_about
from transduce.errors import RunError, SettingError
from transduce.server.metrics import Metrics
from transduce.server.refusals import Unknown
from transduce.server.splitting import Splitter
from transduce.translator import Loading, Request, Translation, Translator, better_weights, open_folder

Result = TypeVar("Result")
_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([A-Za-z][A-Za-z0-9_]*)=(.+)")


@dataclass(frozen=True)
class Specification:
    """A model as the command line names it."""

    folder: Path
    name: str
    source: str  # codes of languages; empty where they are not known
    target: str

    @staticmethod
    def parse(text: str) -> "Specification":
        """`en-de=RUN`, or `RUN` whose settings say what it translates."""
        if named := _NAMED.fullmatch(text):
            source, target, folder = named.groups()
            open_folder(folder)
            return Specification(Path(folder), f"{source}-{target}", source, target)
        name, equals, folder = text.partition("=")
        if equals and not Path(text).exists():
            raise SettingError(f"{text}: the name {name!r} must be two languages, as in en-de={folder}")
        languages = open_folder(text).config.data.languages
        source, target = languages or ("", "")
        return Specification(Path(text), "-".join(languages) or Path(text).resolve().name, source, target)


def normalized(text: str) -> str:
    """As a vocabulary takes it, near enough: some characters become eighteen."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@dataclass(frozen=True)
class Fitting:
    """Whether a sentence has no more tokens than the model learned from: longer ones it has never seen."""

    translator: Translator

    def __call__(self, sentence: str) -> bool:
        longest = min(self.translator.longest_source, self.translator.config.data.max_length)
        # A token is at least a byte of what is left after normalisation: most sentences need no tokenizer.
        if len(normalized(sentence).encode()) < longest:
            return True
        return len(self.translator.vocabularies.source.encode([sentence])[0]) <= longest


@dataclass(frozen=True, eq=False)
class Model:
    """One model, loaded, with the weights it had then."""

    of: Specification
    translator: Translator
    weights: str  # the hash of its weights
    splitter: Splitter
    lock: threading.Lock = field(default_factory=threading.Lock)  # for engines that serve one thread at a time

    @staticmethod
    def load(of: Specification, loading: Loading) -> "Model":
        """A model that has translated: nothing is left to be read from its folder when the first request comes."""
        weights = fingerprint(of.folder, loading)
        translator = _warm(of.folder, loading)
        splitter = Splitter(translator.config.data.task != "symbols", Fitting(translator))
        return Model(of, translator, weights, splitter)

    def translate(self, lines: list[str], request: Request) -> list[Translation]:
        with nullcontext() if self.serves_several(request) else self.lock:
            return list(self.translator.stream(lines, request))

    def serves_several(self, request: Request) -> bool:
        """Whether several threads may ask this at once."""
        return self.translator.engines.concurrent(request)


@dataclass(frozen=True)
class Searching:
    """Work for the queue: requests that ask the same of the same model share batches."""

    model: Model
    request: Request

    @property
    def alone(self) -> Model | None:
        return None if self.model.serves_several(self.request) else self.model

    @property
    def kind(self) -> tuple[object, ...]:
        asked = self.request
        return self.model.of.name, asked.beam, asked.n_best, asked.length_penalty, asked.figures

    def __call__(self, lines: list[str]) -> list[Translation]:
        return self.model.translate(lines, self.request)


class Models:
    """What a server can translate."""

    def __init__(
        self, specifications: Sequence[Specification], loading: Loading, metrics: Metrics, load_s: float
    ) -> None:
        for number, one in enumerate(specifications):
            if one.name in [other.name for other in specifications[:number]]:
                raise SettingError(f"{one.folder}: there is another model for {one.name}: name it as SOURCE-TARGET=RUN")
        self.loading, self.metrics, self.load_s = loading, metrics, load_s
        self._failed: dict[str, str] = {}  # weights that could not be loaded: tried, counted and said once
        self._models = {one.name: load_within(load_s, one, loading) for one in specifications}

    @property
    def all(self) -> list[Model]:
        return list(self._models.values())

    def named(self, name: str) -> Model:
        """The model of this name; the only one there is where no name is given."""
        if not name and len(self._models) == 1:
            return self.all[0]
        if name not in self._models:
            raise Unknown(f"no such model here: there is {', '.join(self._models)}")
        return self._models[name]

    def of_pair(self, source: str, target: str) -> Model:
        for model in self.all:
            if source and (model.of.source, model.of.target) == (source, target):
                return model
        pairs = [f"{m.of.source} to {m.of.target}" for m in self.all if m.of.source]
        raise Unknown(f"not a pair of languages this server translates: it does {', '.join(pairs) or 'none'}")

    async def watch(self, every_s: float) -> None:
        """Look at the folders for as long as the server lives, each by itself: one that hangs keeps no other waiting."""
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
                    f"{model.of.folder}: not loaded within {self.load_s:g} s; {name} keeps its old weights meanwhile"
                )
                await refreshing  # a thread cannot be stopped, and a second one would hang as well

    def refresh(self, model: Model) -> None:
        """Put a new model in the place of one whose weights have changed; what cannot be loaded changes nothing."""
        name, weights = model.of.name, "unreadable"
        try:
            weights = fingerprint(model.of.folder, self.loading)
            if weights in (model.weights, self._failed.get(name)):
                return
            self._models[name] = Model.load(model.of, self.loading)
        except Exception as error:  # whatever it is, the server goes on
            if self._failed.get(name) != weights:
                self._failed[name] = weights
                self.metrics.reloads.labels(name, "failed").inc()
                self.loading.say(f"{name}: keeps its old weights: {error}")
        else:
            self.metrics.reloads.labels(name, "done").inc()
            self.loading.say(f"{name}: new weights")


def load_within(load_s: float, of: Specification, loading: Loading) -> Model:
    """The model, or one line about a folder that takes too long, such as one on a disk that does not answer."""
    try:
        return in_thread(partial(Model.load, of, loading)).result(load_s)
    except TimeoutError:
        raise RunError(f"{of.folder}: the model was not loaded within {load_s:g} s") from None


def in_thread(work: Callable[[], Result]) -> "Future[Result]":
    """What `work` gives, later, from a thread that keeps nobody from leaving, whatever it waits for."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future


def _warm(folder: Path, loading: Loading) -> Translator:
    translator = Translator.load(folder, loading)
    for lines in (["a"], ["a", "b"]):  # CTranslate2 keeps workers of two kinds
        translator.translate(lines)
    return translator


def fingerprint(folder: Path, loading: Loading) -> str:
    """What tells one set of weights from another, without reading them."""
    run = RunFolder(folder)
    which = better_weights(run) if loading.weights == "auto" else loading.weights
    return read_about(run.weights(which)).get("sha256", "")
