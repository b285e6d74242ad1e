"""Scores of test sets: one system, or several compared, and reranking tuned on validation data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transduce.api.models import opened_model
from transduce.api.options import Model, loading_options, reporter
from transduce.cores import tune_idle_threads
from transduce.translator import LoadOptions, SearchRequest, Translator
from transduce.translator.engines import LM_WEIGHT

if TYPE_CHECKING:
    from transduce.comparison import Comparison
    from transduce.reranking import RerankFile
    from transduce.translator.evaluation import Evaluation


def evaluate(
    model: Model,
    sources: Sequence[str],
    *references: Sequence[str],
    to: str = "",
    request: SearchRequest | None = None,
    beam: int | None = None,
    alpha: float | None = None,
    metrics: Sequence[str] = (),
    merge: Literal["auto", "separate", "merged"] = "auto",
    lm: str | Path = "",
    lm_weight: float = LM_WEIGHT,
) -> "Evaluation":
    """Translate sources and score the translations against references.

    Args:
        model: A run folder or a translator.
        sources: Source sentences.
        *references: One or more lists of references, each aligned with the sources.
        to: The target language, for models that translate into several.
        request: All search settings at once; by default those of the model.
        beam: Beam size; 1 is greedy search.
        alpha: Strength of the length penalty.
        metrics: Names as in `transduce evaluate --metrics`; by default the metrics of the task.
        merge: Whether equal sources become one source with several references, as in a dictionary.
        lm: A language model for shallow fusion, as in `load`.
        lm_weight: The weight of its log-probabilities.

    Returns:
        Scores with their signatures, the translations, and the speed.

    Example:
        >>> print(transduce.evaluate("runs/en-de", ["a sentence"], ["ein Satz"], metrics=["bleu"]).scores)
        BLEU 100.0
    """
    return opened_model(model, to, lm, lm_weight).evaluate(
        sources, *references, request=request, beam=beam, alpha=alpha, metrics=metrics, merge=merge
    )


def compare(
    systems: Sequence[str | Path],
    *,
    source: str | Path,
    references: str | Path | Sequence[str | Path] = (),
    labels: str | Path = "",
    language: str = "",
    tokenize: str = "",
    metrics: Sequence[str] = (),
    test: Literal["bootstrap", "randomization"] = "bootstrap",
    samples: int | None = None,
    merge: Literal["auto", "separate", "merged"] = "auto",
    columns: Sequence[str] = (),
    to: str = "",
    beam: int | None = None,
    alpha: float | None = None,
    length_penalty: Literal["paper", "power"] | None = None,
    max_extra: int | None = None,
    html: str | Path = "",
    explorer: str = "http://127.0.0.1:5000/",
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "Comparison":
    """Compare systems on a test set: scores, intervals, significance, and where they differ.

    Args:
        systems: The baseline first. Each is a run folder, a file with one output per line, or `NAME=RUN1,RUN2` for several
            seeds. Run folders are translated once; their outputs are kept in the cache.
        source: The sources of the test set, or a .tsv or .jsonl file with sources and references.
        references: One or more files of references, aligned with the sources.
        labels: A file with a label for each line, such as its corpus; scores are then also given by label.
        language: Language code of the outputs, which selects BLEU's tokenizer; by default that of the first run.
        tokenize: BLEU's tokenizer as sacreBLEU names it, such as "none" for text that is tokenized already.
        metrics: Names as in `transduce evaluate --metrics`, the main one first; by default the metrics of the task.
        test: Paired bootstrap, or approximate randomization.
        samples: Samples of the test; by default sacreBLEU's 1,000 (bootstrap) or 10,000 (randomization).
        merge: Whether equal sources become one source with several references, as in a dictionary.
        columns: The columns of a table, as in `["source=1", "target=2"]`.
        to: The target language of the runs that translate into several.
        beam: Beam size; 1 is greedy search. By default the setting of each run.
        alpha: Strength of the length penalty.
        length_penalty: The form of the length penalty.
        max_extra: Limit outputs to this many tokens more than the input.
        html: Also write an interactive page to this file.
        explorer: The address of the server that the links of the page open.
        options: How to load the models.
        quiet: Print no messages to stderr.

    Returns:
        Scores, tests, groups of sentences, n-grams, and the sentences that differ most.

    Example:
        >>> found = transduce.compare(["runs/a", "runs/b"], source="test.en", references="test.de")
        >>> [system.test.p for system in found.main.systems[1:]]
        [0.031]
    """
    tune_idle_threads()
    from transduce.comparison import CompareRequest, Search
    from transduce.comparison import compare as run_comparison
    from transduce.comparison.page import check_page, write_page

    say = reporter(quiet)
    if html:
        check_page(html, explorer)
    request = CompareRequest(
        systems=[str(system) for system in systems],
        source=source,
        references=[references] if isinstance(references, str | Path) else list(references),
        labels=labels,
        language=language,
        tokenize=tokenize,
        metrics=[metrics] if isinstance(metrics, str) else list(metrics),
        test=test,
        samples=samples,
        merge=merge,
        columns=columns,
        search=Search(beam, alpha, length_penalty, max_extra),
        options=loading_options(options, to, quiet),
        say=say,
    )
    compared = run_comparison(request)
    if html:
        write_page(compared, html, explorer, say)
    return compared.result


def tune_reranker(
    run: Model,
    sources: Sequence[str],
    *references: Sequence[str],
    output: str | Path,
    lm: str | Path = "",
    reverse: str | Path = "",
    n_best: int = 10,
    metric: str = "",
    seed: int = 1,
    to: str = "",
    request: SearchRequest | None = None,
    options: LoadOptions | None = None,
    quiet: bool = False,
) -> "RerankFile":
    """Tune the weights for reranking n-best lists, on validation data, and write them to a file.

    The score of an output is a weighted sum of the translator's score, the log-probability of the output by a language model,
    that of the source by a model of the opposite direction, and the length. `load(run, rerank=output)` uses the file.

    Args:
        run: The run folder of the translator, or a translator.
        sources: Source sentences of the validation data.
        *references: One or more lists of references, each aligned with the sources.
        output: The file to write.
        lm: The run folder of a language model of the target language; its vocabulary does not matter.
        reverse: The run folder of a model that translates from the target language to the source language.
        n_best: The length of the lists. The beam is at least as wide.
        metric: A name as in `transduce evaluate --metrics`; by default the main metric of the task.
        seed: Another seed may find other weights.
        to: The target language, for models that translate into several.
        request: All search settings at once; by default those of the model.
        options: How to load the models.
        quiet: Print no messages to stderr.

    Returns:
        The weights, and the score on the validation data before and after.

    Example:
        >>> tuned = transduce.tune_reranker("runs/en-de", en, de, lm="runs/lm", reverse="runs/de-en", output="rerank.json")
        >>> transduce.load("runs/en-de", rerank="rerank.json").translate(["a sentence"])
    """
    tune_idle_threads()
    from transduce.reranking import TuningRequest, tune

    loading = loading_options(options, to, quiet)
    translator = run if isinstance(run, Translator) else Translator.load(run, loading)
    tuned = tune(
        translator,
        TuningRequest(
            sources=sources,
            references=references,
            lm=str(lm),
            reverse=str(reverse),
            search=(request or translator.request()).but(n_best=n_best),
            metric=metric,
            seed=seed,
            options=loading,
        ),
        reporter(quiet),
    )
    tuned.write(output)
    return tuned
