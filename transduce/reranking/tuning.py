"""Tunes a reranker on validation data: n-best lists are created and scored once, and then weights are searched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from transduce.errors import DataError, SettingError
from transduce.metrics.measures import Measure, make_measures
from transduce.reranking.reranker import Features, Judges
from transduce.reranking.weight_search import Array, Lists, search_weights
from transduce.reranking.weights import MODELS, RerankFile, Weights
from transduce.search import length_penalty
from transduce.translator import LoadOptions, SearchRequest, Translation, Translator
from transduce.translator.evaluation import TestSet, merges_references, task_metrics

# A negative weight of a model would reward outputs that it finds improbable: that is noise of the validation data.
AT_LEAST = np.array([1.0, 0.0, 0.0, -np.inf])


@dataclass(frozen=True, kw_only=True)
class TuningRequest:
    """What to tune on, and which models judge."""

    sources: Sequence[str]
    references: Sequence[Sequence[str]]  # one or more lists, each aligned with the sources
    lm: str = ""
    reverse: str = ""
    search: SearchRequest
    metric: str = ""  # by default the main one of the task
    seed: int = 1
    options: LoadOptions = field(default_factory=LoadOptions)


def tune(translator: Translator, request: TuningRequest, say: Callable[[str], None]) -> RerankFile:
    """The weights that give the best score on the validation data, with everything else that reranking needs."""
    _check(request)
    search = request.search.but(log_probs="outputs")
    merged = merges_references(translator.config, request.sources)
    test = TestSet.of(request.sources, *request.references, merged=merged)
    translator.ready(search)
    judges = Judges(request.lm, request.reverse, request.options)
    judges.ready(translator.config.data.languages)
    say(f"translating {len(test.sources):,} lines with lists of {search.n_best}")
    translations = list(translator.stream(test.sources, search))
    if not any(found.outputs for found in translations):
        raise DataError(
            "no line of the validation data has an output, so there is nothing to rerank: check the lines and the model"
        )
    say("scoring the lists")
    features = judges.features(translations, length_penalty(search.length_penalty, search.alpha))
    say("searching the weights")
    tuned = _tuned(translator, request, test, translations, features)
    if useless := [name for name in MODELS if getattr(tuned, name) and name not in tuned.weighted_models]:
        say(_about_useless(useless))
    return tuned


def _about_useless(names: Sequence[str]) -> str:
    if len(names) > 1:
        return "neither model improved the score: their weights are 0, and `--rerank` will not run them"
    return f"the {MODELS[names[0]]} did not improve the score: its weight is 0, and `--rerank` will not run it"


def _check(request: TuningRequest) -> None:
    if not request.lm and not request.reverse:
        raise SettingError("nothing to rerank with: give --lm RUN, --reverse RUN, or both")
    if request.search.n_best < 2:
        raise SettingError(f"n_best = {request.search.n_best}: reranking needs lists of at least 2 outputs")
    if not request.sources:
        raise DataError("the validation data is empty: give at least one pair")


def _tuned(
    translator: Translator,
    request: TuningRequest,
    test: TestSet,
    translations: Sequence[Translation],
    features: Sequence[Features],
) -> RerankFile:
    measure = _measure(translator, test, request.metric)
    lists = Lists.of(features, _counts(measure, translations, test))

    def score(sums: Array) -> float:
        return float(measure.scores(sums[None])[0])

    weights = search_weights(lists, lambda sums: measure.gain(score(sums)), AT_LEAST, request.seed)
    plain = np.eye(len(weights))[0]
    return RerankFile(
        weights=Weights(*(float(f"{value:.6g}") for value in weights)),
        lm=_absolute(request.lm),
        reverse=_absolute(request.reverse),
        n_best=request.search.n_best,
        alpha=request.search.alpha,
        length_penalty=request.search.length_penalty,
        metric=measure.title,
        before=score(lists.sums(plain)),
        after=score(lists.sums(weights)),
    )


def _measure(translator: Translator, test: TestSet, metric: str) -> Measure:
    task = task_metrics(translator.config, test)
    return make_measures([metric or task.names[0]], test.references, task.language, task.units).main


def _counts(measure: Measure, translations: Sequence[Translation], test: TestSet) -> list[Array]:
    """The counts of the metric for every output of every line, a rank of all lines at a time."""
    longest = max((len(found.outputs) for found in translations), default=0)
    ranks = [measure.count([_text(found, rank) for found in translations]) for rank in range(longest)]
    return [np.array([ranks[n][line] for n in range(len(found.outputs))]) for line, found in enumerate(translations)]


def _text(found: Translation, rank: int) -> str:
    return found.outputs[rank].text if rank < len(found.outputs) else ""


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""
