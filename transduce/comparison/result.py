"""The result of a comparison: scores with intervals, tests against the baseline, and where systems differ.

Plain data, with the verdicts in words and as a dictionary for JSON.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from transduce.comparison.ngrams import NGramDifference, OutputHabits
from transduce.comparison.significance import Interval, Test, TestResult

ONE_SEED = "One training run each: the interval does not cover the difference between seeds."


@dataclass(frozen=True)
class SystemScore:
    """A system under one metric."""

    name: str
    score: float  # the mean of its seeds
    seeds: list[float]  # the score of each seed
    interval: Interval  # of the score: what another test set of this kind might give
    test: TestResult | None  # against the baseline; None for the baseline itself

    @property
    def spread(self) -> float:
        """The range between the scores of the seeds; 0 with one seed."""
        return max(self.seeds) - min(self.seeds)


@dataclass(frozen=True)
class MetricResult:
    """All systems under one metric, the baseline first."""

    title: str
    signature: str
    higher_is_better: bool
    systems: list[SystemScore]

    @property
    def baseline(self) -> SystemScore:
        return self.systems[0]

    def verdict(self, system: SystemScore) -> str:
        """`better`, `worse`, or `no difference shown`."""
        assert system.test, "the baseline has no verdict"
        if not system.test.is_significant:
            return "no difference shown"
        return "better" if (system.test.difference > 0) == self.higher_is_better else "worse"

    def sentence(self, system: SystemScore) -> str:
        """The verdict as a sentence."""
        test, verdict = system.test, self.verdict(system)
        assert test, "the baseline has no verdict"
        figures = (
            f"{self.title} {test.difference:+.2f}, 95% interval [{test.interval.low:+.2f}, {test.interval.high:+.2f}], "
            f"corrected p = {test.p_corrected:.4f}"
        )
        if verdict == "no difference shown":
            return f"No difference shown between {self.baseline.name} and {system.name}: {figures}."
        return f"{system.name} is {verdict} than {self.baseline.name}: {figures}.{self._within_seeds(system)}"

    def _within_seeds(self, system: SystemScore) -> str:
        wider = max(system, self.baseline, key=lambda one: one.spread)
        assert system.test
        if wider.spread < abs(system.test.difference):
            return ""
        return f" But the seeds of {wider.name} alone differ by up to {wider.spread:.2f}: train more seeds of both."


@dataclass(frozen=True)
class GroupResult:
    """Baseline and system on a group of sentences, under the main metric."""

    kind: str
    name: str
    sentences: int
    baseline: float
    system: float
    difference: float
    interval: Interval | None  # None if the group is too small for one


@dataclass(frozen=True)
class PairResult:
    """Where a system differs from the baseline."""

    system: str
    wins: int  # sentences on which the system is better
    ties: int
    losses: int
    groups: list[GroupResult]
    gained: list[NGramDifference]  # n-grams that the system gets more often
    lost: list[NGramDifference]


@dataclass(frozen=True)
class SentenceResult:
    """A sentence of the test set with the outputs of all systems; of several seeds, the outputs of the first."""

    line: int  # in the test set, counted from 1
    source: str
    references: list[str]
    outputs: list[str]
    scores: list[float]  # of these outputs
    groups: list[int]  # the numbers of the groups that it is in


@dataclass(frozen=True)
class Comparison:
    """What `transduce compare` found. The first system is the baseline."""

    names: list[str]
    sentences: int
    test: Test
    samples: int
    metrics: list[MetricResult]  # the main one first
    sentence_metric: str  # by which single sentences are compared
    sentence_higher_is_better: bool
    pairs: list[PairResult]  # one for each system but the baseline
    habits: list[OutputHabits]  # of each system
    rows: list[SentenceResult]  # the sentences that differ most, largest difference first
    notes: list[str]  # what was left out, and why

    @property
    def main(self) -> MetricResult:
        return self.metrics[0]

    def gain(self, row: SentenceResult, system: int) -> float:
        """How much better than the baseline a system is on a sentence; negative if it is worse."""
        difference = row.scores[system] - row.scores[0]
        return difference if self.sentence_higher_is_better else -difference

    def worse(self) -> list[SystemScore]:
        """The systems that are significantly worse than the baseline on the main metric."""
        return [one for one in self.main.systems[1:] if self.main.verdict(one) == "worse"]

    def sentences_about(self) -> Iterator[str]:
        """One sentence about each system, by the main metric."""
        for system in self.main.systems[1:]:
            yield self.main.sentence(system)

    @property
    def caveat(self) -> str:
        """What the intervals leave out if every system has one seed; otherwise nothing, because the spread is shown."""
        return ONE_SEED if all(len(system.seeds) == 1 for system in self.main.systems) else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        result = asdict(self)
        for found, metric in zip(result["metrics"], self.metrics, strict=True):
            for of, system in zip(found["systems"], metric.systems, strict=True):
                of["verdict"] = metric.verdict(system) if system.test else "baseline"
        result["verdicts"] = list(self.sentences_about())
        result["caveat"] = self.caveat
        result["worse"] = [one.name for one in self.worse()]
        return result
