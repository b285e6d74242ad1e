"""A model as the command line names it, and what is known about it before it is loaded. Knows no HTTP."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from transduce.checkpoint import RunFolder, read_about
from transduce.errors import SettingError
from transduce.translator import LoadOptions, better_weights, open_folder
from transduce.translator.word_search import check_has_words, words_changed

Kind = Literal["translation", "speech", "language model"]

_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([A-Za-z][A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KIND_OF_TASK: dict[str, Kind] = {"speech": "speech", "text": "language model"}


@dataclass(frozen=True)
class Specification:
    """The folder of a model, the name that requests choose it by, and its languages."""

    folder: Path
    name: str
    source: str  # language codes; empty if they are not known
    target: str
    kind: Kind = "translation"

    def options(self, loading: LoadOptions) -> LoadOptions:
        """The options that hold for this model: only speech models are searched with an n-gram model of words."""
        return loading if self.kind == "speech" else replace(loading, ngram=False)

    @staticmethod
    def parse(text: str) -> "Specification":
        """Parse `en-de=RUN`, or `RUN`, whose settings contain its languages; other kinds of models have any name."""
        name, equals, folder = text.partition("=")
        if not equals or Path(text).exists():
            return _of_folder(text)
        if pair := _PAIR.fullmatch(name):
            source, target = pair.groups()
            return Specification(Path(folder), name, source, target, _kind(folder))
        if not Path(folder).exists() or _kind(folder) == "translation":
            raise SettingError(
                f"{text}: the name {name!r} must be two language codes, as in en-de={folder} or el-ipa={folder}; to serve "
                f"a model without languages, give {folder} alone, and send requests to POST /v1/translate"
            )
        if not _NAME.fullmatch(name):
            raise SettingError(
                f"{text}: the name {name!r} must be up to 64 letters, digits, dots, dashes or underscores"
            )
        return Specification(Path(folder), name, "", "", _kind(folder))


def _of_folder(folder: str) -> Specification:
    languages = open_folder(folder).config.data.languages
    source, target = languages or ("", "")
    return Specification(
        Path(folder), "-".join(languages) or Path(folder).resolve().name, source, target, _kind(folder)
    )


def _kind(folder: str) -> Kind:
    return _KIND_OF_TASK.get(open_folder(folder).config.data.task, "translation")


def check_words(models: Sequence[Specification], loading: LoadOptions) -> None:
    """Refuse an n-gram model that no model of the server has, before any of them is loaded."""
    if not loading.ngram:
        return
    speech = [model for model in models if model.kind == "speech"]
    if not speech:
        raise SettingError("--ngram is for speech models, and none of these models is one: leave it out")
    for model in speech:
        check_has_words(open_folder(model.folder))


def fingerprint(folder: Path, loading: LoadOptions) -> str:
    """What changes with the weights: their hash, which is stored beside them; and with the words of the search, if it uses them."""
    run = RunFolder(folder)
    which = better_weights(run) if loading.weights == "auto" else loading.weights
    weights = read_about(run.weights(which)).get("sha256", "")
    return f"{weights} {words_changed(run)}" if loading.ngram else weights
