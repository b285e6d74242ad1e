"""From a model and a test set to scores one can quote. Knows text and translators, not training."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.config import Config
from transduce.errors import DataError
from transduce.metrics import Scores, group_references, symbol_scores, translation_scores
from transduce.translator import Request, Translation, Translator


@dataclass(frozen=True)
class TestSet:
    """Unique sources, each with every reference it has: equal sources on several lines are several references."""

    __test__ = False  # not a test class, whatever its name says to pytest

    sources: list[str]
    references: list[list[str]]

    @staticmethod
    def of(sources: Sequence[str], references: Sequence[str], limit: int = 0) -> "TestSet":
        """The test set of aligned lines; with a limit, that many sources spread evenly over it."""
        if len(sources) != len(references):
            raise DataError(f"{len(sources)} sources but {len(references)} references: they must be line by line")
        unique, grouped = group_references(sources, references)
        every = max(1, len(unique) // limit) if limit else 1
        end = every * limit if limit else len(unique)
        return TestSet(unique[:end:every], grouped[:end:every])


@dataclass(frozen=True)
class Evaluation:
    """Scores with their signatures, and how fast they were had."""

    scores: Scores
    translations: list[Translation]
    sentences: int
    seconds: float
    tokens: int  # target tokens produced

    @property
    def outputs(self) -> list[str]:
        return [translation.text for translation in self.translations]

    @property
    def outputs_at_limit(self) -> int:
        """How many outputs reached the length limit, and were probably cut there."""
        return sum(translation.outputs_at_limit for translation in self.translations)

    @property
    def sentences_per_second(self) -> float:
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def evaluate(translator: Translator, test: TestSet, request: Request | None = None) -> Evaluation:
    """Translate the test set and score it by its task's metrics."""
    wanted = (request or translator.request()).but(figures="none")
    translator.ready(wanted)
    begun = time.perf_counter()
    translations = list(translator.stream(test.sources, wanted))
    seconds = time.perf_counter() - begun
    outputs = [translation.text for translation in translations]
    return Evaluation(
        scores=score_texts(outputs, test, translator.config),
        translations=translations,
        sentences=len(outputs),
        seconds=seconds,
        tokens=sum(t.outputs[0].length for t in translations if t.outputs),
    )


def score_texts(outputs: Sequence[str], test: TestSet, config: Config, ter: bool = True) -> Scores:
    """BLEU, chrF and, if wanted, TER for translation; PER, WER and exact match for symbols."""
    if config.data.task == "symbols":
        return symbol_scores(outputs, test.references, "word" if config.data.target_units == "word" else "char")
    language = config.data.languages[1] if config.data.languages else ""
    return translation_scores(outputs, test.references, language, ter)
