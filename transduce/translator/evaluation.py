"""Translates a test set and scores it with the metrics of the task. Knows text and translators, not training."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transduce.config import Config
from transduce.errors import DataError
from transduce.metrics import (
    PRINTED_METRICS,
    PRONUNCIATION_METRICS,
    SYMBOL_METRICS,
    TRANSCRIPT_METRICS,
    Scores,
    SymbolUnits,
    are_phonemes,
    bleu_tokenizer,
    group_references,
    score_outputs,
    translation_metrics,
)
from transduce.translator.engine import SearchRequest
from transduce.translator.file_order import order_warning
from transduce.translator.outputs import Translation
from transduce.translator.translator import Translator

WORDS_A_SOURCE = 1.2  # on average, up to which sources are taken for a list of words


@dataclass(frozen=True)
class TestSet:
    """Sources, each with all of its references."""

    __test__ = False  # tells pytest that this is not a class of tests

    sources: list[str]
    references: list[list[str]]
    merged: bool = False  # whether equal sources were merged
    whole: int = 0  # how many sources there were before some were chosen; 0: these are all

    @property
    def all_lines(self) -> int:
        """How many sources there are in all, these and those that were not chosen."""
        return self.whole or len(self.sources)

    @staticmethod
    def of(sources: Sequence[str], *references: Sequence[str], limit: int = 0, merged: bool = False) -> "TestSet":
        """The test set of aligned lines, or with a limit that many sources spread evenly over it.

        With `merged`, equal sources become one source with all their references, as a dictionary lists the pronunciations
        of a word. Otherwise each line is scored by itself, as the `sacrebleu` command does.
        """
        for lines in references:
            if len(sources) != len(lines):
                raise DataError(
                    f"{len(sources)} sources but {len(lines)} references: give one reference for each source"
                )
        kept, accepted = list(sources), [list(texts) for texts in zip(*references, strict=True)]
        if merged:
            kept, accepted = group_references(sources, accepted)
        whole = TestSet(kept, accepted, merged=len(kept) < len(sources))
        return whole.first(limit) if limit else whole

    def first(self, count: int) -> "TestSet":
        """This many sources, spread evenly over all."""
        every = max(1, len(self.sources) // count)
        chosen = slice(0, every * count, every)
        return TestSet(self.sources[chosen], self.references[chosen], self.merged, self.all_lines)


def merges_references(config: Config, sources: Sequence[str], asked: str = "auto") -> bool:
    """Whether equal sources on several lines are one source with several references.

    `asked` decides, then the setting `data.references`, then the data: in a dictionary the sources are words, and all the
    pronunciations or forms listed for a word are correct.
    """
    setting = config.data.references if asked == "auto" else asked
    if setting != "auto":
        return setting == "merged"
    words = sum(not word.startswith(";") for source in sources for word in source.split())  # without ;FEATURES
    return config.data.task == "symbols" and words < WORDS_A_SOURCE * len(sources)


@dataclass(frozen=True)
class Evaluation:
    """Scores with their signatures, the translations, and the speed."""

    scores: Scores
    sources: list[str]  # fewer than the lines of the test set if equal sources were merged
    translations: list[Translation]
    sentences: int
    seconds: float
    tokens: int  # of the outputs
    order_warning: str = ""  # if the files of the test set seem to be in the wrong order

    @property
    def outputs(self) -> list[str]:
        """The best output for each source."""
        return [translation.text for translation in self.translations]

    def outputs_for(self, lines: Sequence[str]) -> list[str]:
        """The best output for each line of the test set, also where equal sources were merged."""
        if len(lines) == len(self.sources):
            return self.outputs
        output_of = dict(zip(self.sources, self.outputs, strict=True))
        return [output_of[line] for line in lines]

    @property
    def outputs_at_limit(self) -> int:
        """The number of outputs that reached the length limit and are probably incomplete."""
        return sum(translation.outputs_at_limit for translation in self.translations)

    @property
    def sentences_per_second(self) -> float:
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def evaluate(
    translator: Translator, test: TestSet, request: SearchRequest | None = None, metrics: Sequence[str] = ()
) -> Evaluation:
    """Translate the test set and score it with these metrics, or with those of the task."""
    named = _of_task((metrics,) if isinstance(metrics, str) else metrics, translator.config)
    wanted = (request or translator.request()).but(log_probs="none")
    translator.ready(wanted)
    begun = time.perf_counter()
    translations = list(translator.stream(test.sources, wanted))
    seconds = time.perf_counter() - begun
    outputs = [translation.text for translation in translations]
    scores = score_texts(outputs, test, translator.config, metrics=named)
    return Evaluation(
        scores=scores,
        sources=list(test.sources),
        translations=translations,
        sentences=len(outputs),
        seconds=seconds,
        tokens=sum(t.outputs[0].length for t in translations if t.outputs),
        order_warning=_order_warning(test, outputs, scores) if translator.config.data.task == "translation" else "",
    )


def _order_warning(test: TestSet, outputs: Sequence[str], scores: Scores) -> str:
    return order_warning(test.sources, test.references, outputs, {score.name: score.value for score in scores.all})


def _of_task(metrics: Sequence[str], config: Config) -> tuple[str, ...]:
    """The metrics as they are meant: of transcripts, `wer` counts words, and not the lines that differ as for pronunciations."""
    of_speech = {"wer": "word-error-rate"} if config.data.task == "speech" else {}
    return tuple(of_speech.get(name, name) for name in metrics)


def score_texts(
    outputs: Sequence[str],
    test: TestSet,
    config: Config,
    ter: bool = True,
    metrics: Sequence[str] = (),
    main: str = "",
) -> Scores:
    """Score outputs with these metrics, or with those of the task; `ter` says whether these include TER, which is slow.

    `main` is a metric to put before them.
    """
    task = task_metrics(config, test, ter)
    first = (main,) if main else ()
    names = (*first, *(metrics or task.names))
    usual = () if metrics else PRINTED_METRICS.get(task.names, ())
    printed = dict.fromkeys((*first, *usual)) if usual else ()
    about: dict[str, Any] = {"language": task.language, "units": task.units, "merged": test.merged}
    return score_outputs(outputs, test.references, names, printed=printed, **about)


@dataclass(frozen=True)
class TaskMetrics:
    """The metrics of a task, the main one first, and what they need to know about it."""

    names: tuple[str, ...]
    language: str  # of the outputs; selects BLEU's tokenizer
    units: SymbolUnits  # what error rates count


def task_metrics(config: Config, test: TestSet, ter: bool = True) -> TaskMetrics:
    """The metrics for the outputs of a model; `ter` says whether those of a translation task include TER, which is slow."""
    language = config.data.languages[1] if config.data.languages else ""
    if config.data.task == "symbols":
        names = PRONUNCIATION_METRICS if _is_pronunciation(config, test) else SYMBOL_METRICS
        return TaskMetrics(names, language, "word" if config.data.target_units == "word" else "char")
    if config.data.task == "speech":
        return TaskMetrics(TRANSCRIPT_METRICS, language, "word")
    in_words = bleu_tokenizer(language) == "13a"
    return TaskMetrics(translation_metrics(language, test.references, ter), language, "word" if in_words else "char")


def _is_pronunciation(config: Config, test: TestSet) -> bool:
    """Whether the sources are spelled words and the targets phonemes separated by spaces."""
    data = config.data
    spelled = data.source_units == "char" and data.target_units == "word"
    return spelled and not (data.layout and data.layout.features) and are_phonemes(test.references)
