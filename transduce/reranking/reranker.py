"""A translator that reranks its n-best lists: outputs are scored by several models and ordered by the weighted sum.

Axes: K outputs of a line, F features (direct, language model, reverse model, length).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingError
from transduce.reranking.weights import RerankFile, Weights
from transduce.search import Penalty, length_penalty
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator
from transduce.translator.inputs import check_lines

if TYPE_CHECKING:
    from transduce.translator.language_model import LanguageModel

Features = NDArray[np.float64]  # [K, F]
LINES_AT_ONCE = 256  # whose outputs are scored together


@dataclass(frozen=True)
class Judges:
    """The models that judge outputs besides the translator; each is loaded when it is first needed."""

    lm_folder: str
    reverse_folder: str
    options: LoadOptions

    @cached_property
    def lm(self) -> "LanguageModel":
        from transduce.translator.language_model import LanguageModel

        device: Literal["auto", "cpu", "cuda"] = self.options.device  # type: ignore[assignment]
        return LanguageModel.load(self.lm_folder, device=device, threads=self.options.threads)

    @cached_property
    def reverse(self) -> Translator:
        plain = LoadOptions(engine="torch", device=self.options.device, threads=self.options.threads)
        return Translator.load(self.reverse_folder, plain)

    def features(self, translations: Sequence[Translation], penalty: Penalty) -> list[Features]:
        """The features of the outputs of each line [K, F]; a model that is not given has features of 0."""
        texts = [output.text for found in translations for output in found.outputs]
        sources = [found.source for found in translations for _ in found.outputs]
        zeros = [0.0] * len(texts)
        of_lm = self.lm.score_lines(texts) if self.lm_folder and texts else zeros
        of_reverse = self.reverse.score(texts, sources) if self.reverse_folder and texts else zeros
        judged = iter(zip(of_lm, of_reverse, strict=True))
        return [
            np.array(
                [
                    (one.score, *(value / penalty(float(one.length)) for value in next(judged)), one.length)
                    for one in found.outputs
                ]
            ).reshape(-1, 4)
            for found in translations
        ]

    def ready(self, languages: Sequence[str]) -> None:
        """Load the models now, so that errors appear before any input is read; `languages` are those of the translator."""
        _ = self.lm if self.lm_folder else None
        if not self.reverse_folder:
            return
        of_reverse = self.reverse.config.data.languages
        if languages and of_reverse and tuple(of_reverse) != tuple(languages)[::-1]:
            raise SettingError(
                f"{self.reverse_folder} translates from {of_reverse[0]} to {of_reverse[1]}: the reverse model of a translator "
                f"from {languages[0]} to {languages[1]} must translate from {languages[1]} to {languages[0]}"
            )


class RerankingTranslator(Translator):
    """A translator whose outputs are the best of its n-best lists by the weights of a file."""

    def __init__(self, translator: Translator, file: RerankFile, options: LoadOptions) -> None:
        super().__init__(translator.engines, translator.vocabularies, translator.config)
        self.forms, self.file = translator.forms, file
        needed = file.weighted_models  # a model of weight 0 would take time and change nothing
        self.judges = Judges(needed.get("lm", ""), needed.get("reverse", ""), options)
        if self.reads_speech and file.reverse:
            raise SettingError("a reverse model needs sources of text, but this model takes recordings")

    def ready(self, request: SearchRequest | None = None) -> "RerankingTranslator":
        super().ready(self._listing(request or self.request()))
        self.judges.ready(self.config.data.languages)
        return self

    def request(self, **changes: float | bool | str | None) -> SearchRequest:
        """The search settings that the weights were tuned with, with changes."""
        tuned = super().request(alpha=self.file.alpha, length_penalty=self.file.length_penalty)
        return tuned.but(**changes)

    def translate(
        self,
        lines: Sequence[str],
        request: SearchRequest | None = None,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        split: bool = False,
    ) -> list[str]:
        """The best translation of each line after reranking; the arguments are those of `Translator.translate`."""
        wanted = (request or self.request()).but(beam=beam, alpha=alpha, log_probs="none", n_best=1)
        if split:
            return [line.text for line in self.stream_split(check_lines(lines), wanted)]
        return [translation.text for translation in self.stream(check_lines(lines), wanted)]

    def stream(
        self,
        lines: Iterable[str],
        request: SearchRequest | None = None,
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[str]] | None = None,
        paused: Callable[[], bool] | None = None,
        at_most: Iterable[int] | None = None,
    ) -> Iterator[Translation]:
        """Translate and rerank an iterable of any length; the arguments are those of `Translator.stream`."""
        wanted = request or self.request()
        found = super().stream(lines, self._listing(wanted), prefixes, terms, paused, at_most)
        for some in _chunks(found, paused):
            yield from self._reranked(some, wanted)

    def transcribe(
        self, utterances: Sequence[NDArray[np.float16]], request: SearchRequest | None = None
    ) -> list[Translation]:
        """Transcribe and rerank utterances that are in memory; the arguments are those of `Translator.transcribe`."""
        wanted = request or self.request()
        return self._reranked(super().transcribe(utterances, self._listing(wanted)), wanted)

    def _reranked(self, found: Sequence[Translation], wanted: SearchRequest) -> list[Translation]:
        judged = self.judges.features(found, length_penalty(wanted.length_penalty, wanted.alpha))
        both = zip(found, judged, strict=True)
        return [reranked(one, features, self.file.weights, wanted.n_best) for one, features in both]

    def _listing(self, wanted: SearchRequest) -> SearchRequest:
        """The request for the lists that are reranked."""
        if wanted.sampling:
            raise SettingError("reranking needs beam search: leave out sampling, or the reranking")
        log_probs = "outputs" if wanted.log_probs == "none" else wanted.log_probs
        return wanted.but(n_best=max(wanted.n_best, self.file.n_best), log_probs=log_probs)


def reranked(translation: Translation, features: Features, weights: Weights, n_best: int) -> Translation:
    """The translation with its best outputs by weighted sum, which become their scores; equal ones keep their order."""
    scores = features @ np.array(weights.values)
    order = np.argsort(-scores, kind="stable")[:n_best]
    outputs = [replace(translation.outputs[n], score=float(scores[n])) for n in order]
    return translation.of_outputs(outputs)


def _chunks(found: Iterator[Translation], paused: Callable[[], bool] | None) -> Iterator[list[Translation]]:
    """The translations in groups; where the input pauses, what there is, because somebody may wait for it."""
    if paused is None:
        while some := list(islice(found, LINES_AT_ONCE)):
            yield some
        return
    some = []
    for translation in found:
        some.append(translation)
        if len(some) == LINES_AT_ONCE or paused():
            yield some
            some = []
    if some:
        yield some
