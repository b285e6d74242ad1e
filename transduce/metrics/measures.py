"""Measures: metrics as counts for each sentence, whose sums give the score of any set of sentences.

BLEU, chrF and TER are counted and scored by sacreBLEU; error rates and exact match by `transduce.metrics`. This module knows
strings and counts, not systems, and it resamples nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.metrics import (
    ERROR_RATES,
    SACREBLEU,
    TRANSCRIPT_RATES,
    TRANSCRIPT_TITLES,
    SymbolUnits,
    check_metrics,
    count_edit_rate,
    count_errors,
    count_transcript_errors,
    error_rate_signature,
    reference_streams,
    sacrebleu_metric,
    transcript_signature,
)

Counts = NDArray[np.float64]  # [N, K]: N sentences, K counts of each; or the sums of sets of sentences
Figures = NDArray[np.float64]  # one number for each set of sentences

TITLES = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # the names that sacreBLEU prints


class Measure(ABC):
    """A metric that counts sentences and scores sums of counts."""

    title: str  # as it is printed
    higher_is_better: bool

    @abstractmethod
    def count(self, outputs: Sequence[str]) -> Counts:
        """The counts of each sentence, [N, K]."""

    @abstractmethod
    def scores(self, sums: Counts) -> Figures:
        """The score of each row of sums, [sets, K]."""

    @abstractmethod
    def signature(self, test: str, samples: int, seed: str) -> str:
        """What makes a score and its test comparable to others; `test` is `bs` or `ar`."""

    def gain(self, difference: float) -> float:
        """A difference of scores as a gain: positive is better, whatever the metric."""
        return difference if self.higher_is_better else -difference


class SacreBleuMeasure(Measure):
    """BLEU, chrF or TER, counted and scored by sacreBLEU."""

    def __init__(self, name: str, references: Sequence[Sequence[str]], language: str, tokenizer: str = "") -> None:
        self.name, self.references, self.language = name, references, language
        self.title, self.higher_is_better = TITLES[name], name != "ter"
        self.metric: Any = sacrebleu_metric(name, references, language, tokenizer)
        self.metric._ref_cache = self.metric._cache_references(reference_streams(references))

    def count(self, outputs: Sequence[str]) -> Counts:
        if self.name == "ter":  # on all cores
            rate = count_edit_rate(outputs, self.references, self.language)
            return np.array([rate.edits, rate.lengths]).T
        return np.array(self.metric._extract_corpus_statistics(list(outputs), None), dtype=np.float64)

    def scores(self, sums: Counts) -> Figures:
        return np.array([self.metric._compute_score_from_stats(row).score for row in sums])

    def signature(self, test: str, samples: int, seed: str) -> str:
        signed = self.metric.get_signature()
        signed.update("seed", seed)
        signed.update(test, samples)
        return str(signed)


class ErrorRateMeasure(Measure):
    """A token or sequence error rate, exact match, or the mean edit distance."""

    def __init__(self, name: str, references: Sequence[Sequence[str]], units: SymbolUnits) -> None:
        self.name, self.references, self.units = name, references, units
        self.title, self.higher_is_better = ERROR_RATES[name], name == "exact-match"
        self.of_tokens = name in ("token-error-rate", "per")

    def count(self, outputs: Sequence[str]) -> Counts:
        counts = np.array(count_errors(outputs, self.references, self.units), dtype=np.float64)
        if self.of_tokens:
            return counts
        if self.name == "edit-distance":
            return np.stack([counts[:, 0], np.full(len(counts), 100.0)], axis=1)  # a mean, not a percentage
        wrong = counts[:, 0] > 0
        return np.stack([~wrong if self.name == "exact-match" else wrong, np.ones(len(wrong))], axis=1).astype(float)

    def scores(self, sums: Counts) -> Figures:
        return np.asarray(100 * sums[..., 0] / np.maximum(sums[..., 1], 1))

    def signature(self, test: str, samples: int, seed: str) -> str:
        references, _, rest = self._untested_signature().partition("|")
        return f"{references}|{test}:{samples}|seed:{seed}|{rest}"

    def _untested_signature(self) -> str:
        return error_rate_signature(self.references, self.units)


class TranscriptMeasure(ErrorRateMeasure):
    """Word or character error rate of normalised transcripts."""

    def __init__(self, name: str, references: Sequence[Sequence[str]]) -> None:
        self.name, self.references, self.units = name, references, TRANSCRIPT_RATES[name]
        self.title, self.higher_is_better = TRANSCRIPT_TITLES[name], False

    def count(self, outputs: Sequence[str]) -> Counts:
        return np.array(count_transcript_errors(outputs, self.references, self.units), dtype=np.float64)

    def _untested_signature(self) -> str:
        return transcript_signature(self.references, self.units)


@dataclass(frozen=True)
class Measures:
    """The measures of a comparison, the main one first, and the one by which sentences are compared."""

    all: tuple[Measure, ...]
    sentence: Measure

    @property
    def main(self) -> Measure:
        """The measure that decides which system is better."""
        return self.all[0]


def make_measures(
    names: Sequence[str], references: Sequence[Sequence[str]], language: str, units: SymbolUnits, tokenizer: str = ""
) -> Measures:
    """The named measures. Sentences are compared by chrF, since most sentences have a BLEU near 0; symbols by their edits;
    transcripts by their first error rate, which is of normalised text."""
    check_metrics(names)
    made: dict[str, Measure] = {}
    of_transcripts = next((name for name in names if name in TRANSCRIPT_RATES), "token-error-rate")
    sentence = "chrf" if set(names) & set(SACREBLEU) else of_transcripts
    for name in dict.fromkeys((*names, sentence)):
        if name in SACREBLEU:
            made[name] = SacreBleuMeasure(name, references, language, tokenizer)
        elif name in TRANSCRIPT_RATES:
            made[name] = TranscriptMeasure(name, references)
        else:
            made[name] = ErrorRateMeasure(name, references, units)
    return Measures(tuple(made[name] for name in dict.fromkeys(names)), made[sentence])
