"""Is a difference real? Paired tests between a baseline and other systems, intervals, and Holm's correction.

The tests of BLEU, chrF and TER are sacreBLEU's own (`sacrebleu.significance.PairedTest`). Error rates are tested by the same
resampling, written here with whole arrays. This module knows counts and measures, not texts.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingError
from transduce.metrics.measures import Counts, Figures, Measure, SacreBleuMeasure

Test = Literal["bootstrap", "randomization"]
SAMPLES = {"bootstrap": 1_000, "randomization": 10_000}  # sacreBLEU's defaults
SHORT = {"bootstrap": "bs", "randomization": "ar"}  # sacreBLEU's names
LEVEL = 0.05
ROUNDING = 1e-9  # two scores that differ by less are equal
CELLS = 5_000_000  # samples x sentences that are in memory at once; a cell takes about 24 bytes
SACREBLEU_CELLS = 1_000_000_000  # in an array of sacreBLEU's test; above it, the same test is done in parts here


@dataclass(frozen=True)
class Seeds:
    """The counts of a system under one measure: [S, N, K] for S seeds. Its score is the mean of the scores of its seeds."""

    counts: NDArray[np.float64]

    @property
    def sentences(self) -> int:
        return int(self.counts.shape[1])

    def of(self, sentences: NDArray[np.intp]) -> "Seeds":
        """The counts of some sentences only."""
        return Seeds(self.counts[:, sentences])

    def flat(self) -> Counts:
        """The counts of all seeds side by side: [N, S * K]."""
        return np.concatenate(list(self.counts), axis=1)

    def scores(self, measure: Measure) -> list[float]:
        """The score of each seed."""
        return [float(score) for score in measure.scores(self.counts.sum(axis=1))]

    def score(self, measure: Measure) -> float:
        return float(np.mean(self.scores(measure)))


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of the resampled values."""

    low: float
    high: float

    @staticmethod
    def of(values: Figures) -> "Interval":
        """By sacreBLEU's rule: 1/40 of the values is left out at each end."""
        ordered = np.sort(values)
        left_out = len(ordered) // 40
        return Interval(float(ordered[left_out]), float(ordered[len(ordered) - left_out - 1]))


@dataclass(frozen=True)
class TestResult:
    """How a system compares to the baseline under one measure."""

    __test__ = False  # tells pytest that this is not a class of tests

    difference: float  # of the scores: system minus baseline
    interval: Interval  # of the difference
    p: float  # sacreBLEU's
    p_two_sided: float  # from the same samples; the decision uses this one
    p_corrected: float  # two-sided, corrected for the number of systems

    @property
    def is_equal(self) -> bool:
        """Whether no sample shows any difference, as for identical outputs."""
        return self.difference == self.interval.low == self.interval.high == 0

    @property
    def is_significant(self) -> bool:
        return self.p_corrected < LEVEL


def resampling_seed() -> int | None:
    """The seed of sacreBLEU's tests: $SACREBLEU_SEED, else 12345; `none` gives other samples in every run."""
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() != "none" and not text.isdecimal():
        raise SettingError(f"SACREBLEU_SEED={text}: set it to a number, or to none")
    return None if text.lower() == "none" else int(text)


def mean_scores(measure: Measure, sums: Counts, seeds: int) -> Figures:
    """The mean score over the seeds of each row of sums, [sets, S * K]."""
    return np.mean([measure.scores(part) for part in np.split(sums, seeds, axis=1)], axis=0)


# --- samples -----------------------------------------------------------------------------------------------------


def bootstrap_sums(tables: Sequence[Counts], samples: int) -> list[Counts]:
    """The sums of each table of counts over bootstrap samples of its rows: the same samples for all, and as sacreBLEU's.

    A sample is kept as the number of times that each row is in it, so that the sums of all tables are one matrix product.
    """
    joined = np.concatenate(tables, axis=1)
    sums = np.concatenate([drawn @ joined for drawn in _drawn(len(joined), samples)])
    return np.split(sums, np.cumsum([table.shape[1] for table in tables])[:-1], axis=1)


def _drawn(rows: int, samples: int) -> Iterator[NDArray[np.float64]]:
    """How often each row is in each sample, some samples at a time; the order of draws is sacreBLEU's."""
    generator = np.random.default_rng(resampling_seed() or None)
    for size in _chunks(rows, samples):
        chosen = generator.choice(rows, size=(size, rows), replace=True)
        chosen += rows * np.arange(size)[:, None]
        yield np.bincount(chosen.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def _swapped_sums(one: Counts, other: Counts, samples: int) -> Iterator[tuple[Counts, Counts]]:
    """The sums of two systems after their outputs were swapped at random, in the order of sacreBLEU's draws."""
    generator = np.random.default_rng(resampling_seed() or None)
    total = one.sum(axis=0) + other.sum(axis=0)
    for size in _chunks(len(one), samples):
        kept = generator.integers(2, size=(size, len(one)), dtype=bool)
        first = kept.astype(np.float64) @ (one - other) + other.sum(axis=0)
        yield first, total - first


def _chunks(rows: int, samples: int) -> Iterator[int]:
    most = max(1, CELLS // max(rows, 1) // 32) * 32  # random bits come by 32, and the rest of the last 32 is lost
    yield from (min(most, samples - begin) for begin in range(0, samples, most))


# --- tests -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """The intervals of the scores of all systems, the baseline first, and the test of every other system against it."""

    intervals: list[Interval]
    results: list[TestResult]


def paired_tests(measure: Measure, systems: Sequence[Seeds], test: Test, samples: int) -> Tested:
    """Test each system against the first; p is corrected for the number of systems."""
    most = samples if test == "bootstrap" else SAMPLES["bootstrap"]  # swaps give no intervals
    resampled = resampled_scores(measure, systems, min(samples, most))
    differences = [system.score(measure) - systems[0].score(measure) for system in systems[1:]]
    drawn = [scores - resampled[0] for scores in resampled[1:]]
    intervals = [Interval.of(of) for of in drawn]
    # Differences that chance alone gives, as each test imitates it.
    if test == "bootstrap":
        by_chance = [of - of.mean() for of in drawn]
    else:
        by_chance = [_swapped_differences(measure, systems[0], system, samples) for system in systems[1:]]
    p_values = _p_values(measure, systems, test, samples, differences, drawn if test == "bootstrap" else by_chance)
    two_sided = list(map(p_two_sided, by_chance, differences))
    results = map(TestResult, differences, intervals, p_values, two_sided, holm(two_sided))
    return Tested([Interval.of(scores) for scores in resampled], list(results))


def resampled_scores(measure: Measure, systems: Sequence[Seeds], samples: int) -> list[Figures]:
    """The scores of each system on bootstrap samples of the sentences."""
    sums = bootstrap_sums([system.flat() for system in systems], samples)
    return [mean_scores(measure, of, len(system.counts)) for of, system in zip(sums, systems, strict=True)]


def _p_values(
    measure: Measure,
    systems: Sequence[Seeds],
    test: Test,
    samples: int,
    differences: Sequence[float],
    drawn: Sequence[Figures],
) -> list[float]:
    """p as sacreBLEU computes it: by its own implementation for its own metrics."""
    if isinstance(measure, SacreBleuMeasure) and _sacrebleu_cells(systems, test, samples) <= SACREBLEU_CELLS:
        return sacrebleu_p_values(measure, systems, test, samples)
    absolute = [np.abs(of) for of in drawn]
    if test == "bootstrap":
        absolute = [of - of.mean() for of in absolute]
    return [p_value(of, abs(real)) for of, real in zip(absolute, differences, strict=True)]


def _sacrebleu_cells(systems: Sequence[Seeds], test: Test, samples: int) -> int:
    """The size of the largest array that sacreBLEU's test makes."""
    columns = max(one.counts.shape[0] * one.counts.shape[2] for one in systems) if test == "bootstrap" else 1
    return samples * systems[0].sentences * columns


def _swapped_differences(measure: Measure, baseline: Seeds, system: Seeds, samples: int) -> Figures:
    """The differences of the scores after random swaps."""
    found = []
    for one, other in _swapped_sums(baseline.flat(), system.flat(), samples):
        scores = [mean_scores(measure, sums, len(baseline.counts)) for sums in (one, other)]
        found.append(scores[1] - scores[0])
    return np.concatenate(found)


def p_value(differences: Figures, real: float) -> float:
    """The share of differences above the real one, by sacreBLEU's rule."""
    return (int(np.sum(differences > real)) + 1) / (len(differences) + 1)


def p_two_sided(by_chance: Figures, real: float) -> float:
    """The share of differences that chance alone gives and that are as large as the real one, whatever their sign.

    sacreBLEU's p differs in two ways that make it too small. Its bootstrap takes the absolute value before it subtracts the
    mean, so that only one side counts; and both its tests count only differences that are larger than the real one, so that
    two systems that differ in a single sentence, or in none, have the smallest p there is. See docs/decisions/0015-compare.md.
    """
    return (int(np.sum(np.abs(by_chance) >= abs(real) - ROUNDING)) + 1) / (len(by_chance) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: tests that were made together, and the chance of any wrong alarm stays below the level."""
    order = np.argsort(p_values, kind="stable")
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        corrected[number] = largest
    return corrected


# --- sacreBLEU's own implementation ------------------------------------------------------------------------------


def sacrebleu_p_values(measure: SacreBleuMeasure, systems: Sequence[Seeds], test: Test, samples: int) -> list[float]:
    """p of each system but the first by `sacrebleu.significance.PairedTest`, which is given counts in place of texts."""
    from sacrebleu.significance import PairedTest

    named = [(str(number), one.flat()) for number, one in enumerate(systems)]
    metrics = {measure.title: _Counted(measure, systems[0].counts.shape[2])}
    _, found = PairedTest(named, metrics, None, test_type=SHORT[test], n_samples=samples)()
    return [float(result.p_value) for result in found[measure.title][1:]]


@dataclass(frozen=True)
class _Mean:
    """The part of sacreBLEU's `Score` that its paired tests use."""

    name: str
    score: float


@dataclass(frozen=True)
class _Counted:
    """The part of sacreBLEU's `Metric` that its paired tests use, for counts that are known already."""

    measure: SacreBleuMeasure
    columns: int  # K, the counts of one seed

    def _extract_corpus_statistics(self, counts: Counts, references: None) -> Counts:
        return counts

    def _aggregate_and_compute(self, counts: Counts) -> _Mean:
        return self._compute_score_from_stats(np.asarray(counts).sum(axis=0))

    def _compute_score_from_stats(self, sums: Any) -> _Mean:
        scores = self.measure.scores(np.reshape(sums, (-1, self.columns)))
        return _Mean(self.measure.title, float(np.mean(scores)))

    def get_signature(self) -> Any:
        return self.measure.metric.get_signature()
