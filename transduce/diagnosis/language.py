"""The wrong language: pairs whose sides are swapped, sides in the other side's language, and lines in a third language.

Suspects are found by their words (`transduce/diagnosis/profiles.py`), and lingua confirms them. A sample of all pairs is
checked as well, because a file in which most pairs are wrong has no suspects: their words are the usual ones there. Where lingua is not installed or does not know
the languages, suspects are reported and kept, and lines in a third language are not looked for. Knows no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place
from transduce.diagnosis.detection import Contradiction, Detector, contradiction, languages_of
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Severity
from transduce.diagnosis.profiles import suspects

SWAPPED, WRONG = "swapped_sides", "wrong_language"
KINDS = ("swapped", "source", "target", "strange source", "strange target")
SAMPLED_OF_BLOCK = 32  # pairs
SAMPLED = 2_000  # pairs of each group of files, at most twice as many while they are collected
CHECKED = 20_000  # suspects of each kind that lingua looks at
TRUSTED = 0.9  # share of the checked suspects that must be confirmed before the unchecked ones are believed
SERIOUS = 0.01  # share of the pairs
NOTABLE = 0.001
UNCONFIRMED = (
    " This is judged by words alone, and --write keeps these pairs, because lingua is not installed"
    " (pip install 'transduce[doctor]') or does not know the languages."
)

T = TypeVar("T")
Numbers = NDArray[np.int64]


@dataclass
class _Suspects:
    """The numbers of the suspects of one kind, and the first of them as examples to be checked."""

    numbers: list[Numbers] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Observed:
    """Rows and examples of each kind of suspects in one block, and a few of its pairs."""

    rows: dict[str, Numbers]
    examples: dict[str, list[Example]]
    sample: list[Example]


@dataclass(frozen=True)
class Confirmed:
    """The suspects of one kind that are wrong."""

    numbers: Numbers
    examples: tuple[Example, ...]


class LanguageAnalysis:
    """Finds swapped pairs and texts in the wrong language."""

    name = "languages"

    def __init__(self, context: Context) -> None:
        self.role, self.languages = context.role, context.languages
        self._suspects = {kind: _Suspects() for kind in KINDS}
        self._samples: dict[int, _Sample] = {}
        self._pairs = 0
        self._removed: dict[str, Numbers] = {}

    def observe(self, block: Block) -> Observed:
        found = suspects(block)
        both = np.intersect1d(*found.like_other, assume_unique=True)
        source, target = (np.setdiff1d(rows, both, assume_unique=True) for rows in found.like_other)
        rows = dict(zip(KINDS, (both, source, target, *found.strange), strict=True))
        examples = {
            kind: [block.example(int(row), side=int(kind.endswith("target"))) for row in some]
            for kind, some in rows.items()
        }
        return Observed(rows, examples, [block.example(row) for row in _spread(range(len(block)), SAMPLED_OF_BLOCK)])

    def add(self, place: Place, observed: Observed) -> None:
        self._pairs += len(place)
        self._samples.setdefault(place.group, _Sample()).add(observed.sample, len(place))
        for kind, known in self._suspects.items():
            known.numbers.append(observed.rows[kind] + place.first_pair)
            known.examples += observed.examples[kind][: max(0, CHECKED - len(known.examples))]

    def finish(self) -> list[Finding]:
        sample = [one for sample in self._samples.values() for one in sample.examples]
        languages = languages_of(self.languages, sample)
        if languages and languages[0] == languages[1]:
            return []  # nothing can be swapped
        if wrong_files := self._wrong_files():
            return wrong_files
        detector = Detector(*languages) if languages else None
        swapped_files = [one for one in self._samples.values() if detector and detector.mostly_swapped(one.examples)]
        if swapped_files:
            return [self._swapped_files(swapped_files)]
        swapped, *wrong = (_confirmed(known, kind, detector) for kind, known in self._suspects.items())
        numbers = np.unique(np.concatenate([one.numbers for one in wrong]))
        self._removed = {SWAPPED: swapped.numbers, WRONG: numbers} if detector else {}
        return [*self._swapped(swapped, detector), *self._wrong(wrong, len(numbers), detector)]

    def concerned(self) -> Mapping[str, Numbers]:
        return self._removed

    def _wrong_files(self) -> list[Finding]:
        """Files in another language than --languages says; swapped files are found by the language of each pair."""
        found = []
        for sample in self._samples.values() if self.languages else ():
            sides = [one.source for one in sample.examples], [one.target for one in sample.examples]
            wrong = contradiction(self.languages, sides)
            if wrong and not wrong.swapped:
                found.append(self._wrong_file(sample, wrong))
        return found

    def _wrong_file(self, sample: "_Sample", wrong: Contradiction) -> Finding:
        return Finding(
            WRONG,
            "serious",
            sample.pairs,
            sample.pairs / self._pairs,
            f"--languages says {' to '.join(self.languages)}, but {wrong.looks} in the {len(sample.examples):,} pairs "
            "that were checked.",
            f"Correct --languages, or the files{self._kept}.",
            tuple(_spread(sample.examples, MOST_EXAMPLES)),
            self.role,
        )

    @property
    def _kept(self) -> str:
        """Of validation and test data, every finding says that they are never changed."""
        return "; --write keeps these pairs" if self.role == "train" else ""

    def _swapped_files(self, samples: Sequence["_Sample"]) -> Finding:
        count = sum(sample.pairs for sample in samples)
        checked = sum(len(sample.examples) for sample in samples)
        return Finding(
            SWAPPED,
            "serious",
            count,
            count / self._pairs,
            f"Of {checked:,} pairs that were checked, most have sources in the target language and targets in the source language.",
            f"Swap the two files, or the two languages after --languages{self._kept}.",
            tuple(_spread(samples[0].examples, MOST_EXAMPLES)),
            self.role,
        )

    def _swapped(self, found: Confirmed, detector: Detector | None) -> list[Finding]:
        share = len(found.numbers) / max(1, self._pairs)
        explanation = "The source is in the language of the target and the target in that of the source."
        explanation += "" if detector else UNCONFIRMED
        advice = "Swap the two sides of these pairs."
        severity: Severity = "serious" if detector and share > SERIOUS else "notable"
        shown = tuple(_spread(found.examples, MOST_EXAMPLES))
        one = Finding(SWAPPED, severity, len(found.numbers), share, explanation, advice, shown, self.role)
        return [one] if one.count else []

    def _wrong(self, found: Sequence[Confirmed], count: int, detector: Detector | None) -> list[Finding]:
        examples = sorted((example for one in found for example in one.examples), key=lambda one: one.detail)
        explanation = (
            "One side is not in its language, so a model learns to leave text untranslated or to mix languages."
        )
        advice = "Look at the examples."
        explanation += "" if detector else UNCONFIRMED
        shown = tuple(_spread(examples, MOST_EXAMPLES))
        share = count / max(1, self._pairs)
        severity: Severity = "notable" if share > NOTABLE else "note"
        one = Finding(WRONG, severity, count, share, explanation, advice, shown, self.role)
        return [one] if one.count else []


def _spread(items: Sequence[T], most: int) -> list[T]:
    """At most this many of the items, spread evenly."""
    step = max(1, -(-len(items) // most))
    return list(items[::step])


class _Sample:
    """Pairs spread evenly over a group of files."""

    def __init__(self) -> None:
        self.examples: list[Example] = []
        self.pairs = self._blocks = 0
        self._every = 1

    def add(self, examples: list[Example], pairs: int) -> None:
        self.pairs += pairs
        if self._blocks % self._every == 0:
            self.examples += examples
        self._blocks += 1
        if len(self.examples) > 2 * SAMPLED:
            self.examples = self.examples[::2]
            self._every *= 2


def _confirmed(known: _Suspects, kind: str, detector: Detector | None) -> Confirmed:
    """The suspects that are wrong: those that lingua confirms, and the unchecked ones if it confirmed nearly all."""
    numbers = np.concatenate([np.empty(0, np.int64), *known.numbers])
    if detector is None:
        return Confirmed(*((numbers, tuple(known.examples)) if "strange" not in kind else (numbers[:0], ())))
    details = detector.verdicts(kind, known.examples)
    wrong = np.array([bool(detail) for detail in details], bool)
    rest = numbers[len(wrong) :] if wrong.sum() >= TRUSTED * len(wrong) else numbers[:0]
    shown = [Example(e.file, e.line, e.source, e.target, d) for e, d in zip(known.examples, details, strict=True) if d]
    return Confirmed(np.concatenate([numbers[: len(wrong)][wrong], rest]), tuple(shown))
