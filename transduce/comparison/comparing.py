"""From systems and a test set to a comparison: translate or read, count, test, and look where systems differ."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transduce.comparison.groups import Group, SourceUnits, make_groups
from transduce.comparison.ngrams import Tokenize, matched_ngrams, ngram_differences, output_habits
from transduce.comparison.request import CompareRequest
from transduce.comparison.result import Comparison, GroupResult, MetricResult, PairResult, SentenceResult, SystemScore
from transduce.comparison.significance import (
    SAMPLES,
    SHORT,
    Interval,
    Seeds,
    paired_tests,
    resampled_scores,
    resampling_seed,
)
from transduce.comparison.systems import System, open_system, parse_systems, translate_member
from transduce.comparison.test_lines import TestLines, is_text, read_test_lines
from transduce.comparison.training_words import TrainingWords, count_training_words
from transduce.config import Config
from transduce.errors import SettingError
from transduce.metrics import sacrebleu_metric
from transduce.metrics.measures import Figures, Measure, Measures, make_measures
from transduce.translator.file_order import order_warning

LEAST_GROUP = 10  # sentences of a group that gets an interval
MOST_ROWS = 1_000  # sentences that a result keeps
TIE = 1e-9  # up to this difference, two sentence scores are a tie


@dataclass(frozen=True)
class Compared:
    """A comparison, with the systems and outputs that it was made from."""

    systems: list[System]
    outputs: list[list[list[str]]]  # of each system, for each seed, one for each sentence
    result: Comparison


def compare(request: CompareRequest) -> Compared:
    """Compare systems on a test set; the first one is the baseline."""
    systems = [open_system(paths, request.options) for paths in parse_systems(request.systems)]
    if request.test == "randomization" and len({len(system.members) for system in systems}) > 1:
        raise SettingError(
            "randomization needs the same number of seeds for every system: leave out some, or use --test bootstrap"
        )
    lines = read_test_lines(request, first_config(systems))
    outputs = [outputs_of(system, lines, request) for system in systems]
    task = lines.task
    measures = make_measures(task.names, lines.test.references, task.language, task.units, request.tokenize)
    result = _Comparing(systems, lines, outputs, measures, request).result()
    if warning := _order_warning(lines, outputs, result):
        request.say(warning)
    return Compared(systems, outputs, result)


def _order_warning(lines: TestLines, outputs: list[list[list[str]]], result: Comparison) -> str:
    """A warning if the outputs of every system say that the files are in the wrong order."""
    found = []
    for number, of in enumerate(outputs if is_text(lines.task) else ()):
        scores = {metric.title: metric.systems[number].score for metric in result.metrics}
        found.append(order_warning(lines.test.sources, lines.test.references, of[0], scores))
    return found[0] if found and all(found) else ""


def first_config(systems: Sequence[System]) -> Config | None:
    """The settings of the first run folder among the systems."""
    return next((config for system in systems for _, config in system.runs), None)


def outputs_of(system: System, lines: TestLines, request: CompareRequest) -> list[list[str]]:
    """The outputs of each seed of a system."""
    return [
        translate_member(member, lines.test.sources, request.search, request.say)
        if member.config
        else lines.outputs_of(member.path)
        for member in system.members
    ]


@dataclass(frozen=True)
class _Comparing:
    """Everything that the parts of a result are computed from."""

    systems: list[System]
    lines: TestLines
    outputs: list[list[list[str]]]
    measures: Measures
    request: CompareRequest

    def result(self) -> Comparison:
        counts = {
            measure: self._counts(measure) for measure in dict.fromkeys((*self.measures.all, self.measures.sentence))
        }
        words = self._training_words()
        groups = self._groups(words)
        scores = [self.measures.sentence.scores(seeds.counts[0]) for seeds in counts[self.measures.sentence]]
        return Comparison(
            names=[system.name for system in self.systems],
            sentences=len(self.lines.test.sources),
            test=self.request.test,
            samples=self.request.number_of_samples,
            metrics=[self._metric(measure, counts[measure]) for measure in self.measures.all],
            sentence_metric=self.measures.sentence.title,
            sentence_higher_is_better=self.measures.sentence.higher_is_better,
            pairs=self._pairs(counts[self.measures.main], scores, groups),
            habits=[output_habits(of[0], self.lines.test.references, self._tokenize) for of in self.outputs],
            rows=self._rows(scores, groups),
            notes=[words.note],
        )

    def _counts(self, measure: Measure) -> list[Seeds]:
        return [Seeds(np.stack([measure.count(outputs) for outputs in of])) for of in self.outputs]

    # --- scores and tests ---

    def _metric(self, measure: Measure, seeds: list[Seeds]) -> MetricResult:
        samples = self.request.number_of_samples
        tested = paired_tests(measure, seeds, self.request.test, samples)
        systems = [
            SystemScore(system.name, of.score(measure), of.scores(measure), interval, test)
            for system, of, interval, test in zip(
                self.systems, seeds, tested.intervals, [None, *tested.results], strict=True
            )
        ]
        signature = measure.signature(SHORT[self.request.test], samples, str(resampling_seed()).lower())
        merged = "|refs:merged" if self.lines.test.merged else ""
        return MetricResult(measure.title, signature + merged, measure.higher_is_better, systems)

    # --- where they differ ---

    def _training_words(self) -> TrainingWords:
        runs = [(path, config.data) for system in self.systems for path, config in system.runs]
        return count_training_words(runs, self.lines.test.sources, self._source_units)

    @property
    def _source_units(self) -> SourceUnits:
        config = first_config(self.systems)
        return SourceUnits.of(self.lines.test.sources, bool(config and config.data.source_units == "char"))

    def _groups(self, words: TrainingWords) -> list[Group]:
        test = self.lines.test
        return make_groups(test.sources, test.references, self._source_units, words.counts, self.lines.labels)

    @property
    def _tokenize(self) -> Tokenize:
        """The tokens of an output: BLEU's for running text, otherwise the symbols that error rates count."""
        if is_text(self.lines.task):
            language, asked = self.lines.task.language, self.request.tokenize
            tokenizer = sacrebleu_metric("bleu", self.lines.test.references, language, asked).tokenizer
            return lambda text: tokenizer(text.rstrip()).split()
        return str.split if self.lines.task.units == "word" else list

    def _pairs(self, main: list[Seeds], scores: list[Figures], groups: list[Group]) -> list[PairResult]:
        """Each system beside the baseline."""
        references, tokenize = self.lines.test.references, self._tokenize
        matched = [matched_ngrams(of[0], references, tokenize) for of in self.outputs]
        samples = min(self.request.number_of_samples, SAMPLES["bootstrap"])
        in_groups = [_group_results(self.measures.main, main, group, samples) for group in groups]
        pairs = []
        for number, system in enumerate(self.systems[1:], start=1):
            gains = np.array([self.measures.sentence.gain(d) for d in scores[number] - scores[0]])
            wins, losses = int(np.sum(gains > TIE)), int(np.sum(gains < -TIE))
            gained, lost = ngram_differences(matched[0], matched[number])
            found = [of[number - 1] for of in in_groups]
            pairs.append(PairResult(system.name, wins, len(gains) - wins - losses, losses, found, gained, lost))
        return pairs

    def _rows(self, scores: list[Figures], groups: list[Group]) -> list[SentenceResult]:
        """The sentences with the largest differences between the baseline and any other system."""
        largest = np.max([np.abs(of - scores[0]) for of in scores[1:]], axis=0)
        order = np.argsort(-largest, kind="stable")[:MOST_ROWS]
        members: dict[int, list[int]] = {int(index): [] for index in order}
        for number, group in enumerate(groups):
            for index in group.sentences:
                if int(index) in members:
                    members[int(index)].append(number)
        return [self._row(index, scores, members[index]) for index in map(int, order)]

    def _row(self, index: int, scores: list[Figures], groups: list[int]) -> SentenceResult:
        return SentenceResult(
            line=self.lines.first[index] + 1,
            source=self.lines.test.sources[index],
            references=list(self.lines.test.references[index]),
            outputs=[of[0][index] for of in self.outputs],
            scores=[float(of[index]) for of in scores],
            groups=groups,
        )


def _group_results(measure: Measure, systems: list[Seeds], group: Group, samples: int) -> list[GroupResult]:
    """Each system but the baseline on a group of sentences."""
    of_group = [seeds.of(group.sentences) for seeds in systems]
    values = [seeds.score(measure) for seeds in of_group]
    intervals: list[Interval | None] = [None] * (len(systems) - 1)
    if len(group.sentences) >= LEAST_GROUP:
        drawn = resampled_scores(measure, of_group, samples)
        intervals = [Interval.of(scores - drawn[0]) for scores in drawn[1:]]
    return [
        GroupResult(group.kind, group.name, len(group.sentences), values[0], value, value - values[0], interval)
        for value, interval in zip(values[1:], intervals, strict=True)
    ]
