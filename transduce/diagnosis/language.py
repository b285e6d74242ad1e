"""The wrong language: pairs whose sides are swapped, sides in the other side's language, and lines in a third language.

Suspects are found by their words (`transduce/diagnosis/profiles.py`), and lingua confirms them. A sample of all pairs is
checked as well, because a file in which most pairs are wrong has no suspects. Without lingua, suspects by words alone are
reported, and lines in a third language are not. Knows texts and languages, and no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Severity
from transduce.diagnosis.profiles import suspects

SWAPPED, WRONG = "swapped_sides", "wrong_language"
KINDS = ("swapped", "source", "target", "strange source", "strange target")
SAMPLED_OF_BLOCK = 32  # pairs
SAMPLED = 2_000  # pairs of each group of files, at most twice as many while they are collected
MOSTLY = 0.8  # share of the sample that makes a whole file wrong
CHECKED = 20_000  # suspects of each kind that lingua looks at
TRUSTED = 0.9  # share of the checked suspects that must be confirmed before the unchecked ones are believed
FOREIGN = 0.05  # probability of both languages together below which a text is in a third one
SERIOUS = 0.01  # share of the pairs
NOTABLE = 0.001
FEWEST_SAMPLED = 20

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
        examples = {kind: [block.example(int(row)) for row in some] for kind, some in rows.items()}
        return Observed(rows, examples, [block.example(row) for row in _spread(range(len(block)), SAMPLED_OF_BLOCK)])

    def add(self, place: Place, observed: Observed) -> None:
        self._pairs += len(place)
        self._samples.setdefault(place.group, _Sample()).add(observed.sample, len(place))
        for kind, known in self._suspects.items():
            known.numbers.append(observed.rows[kind] + place.first_pair)
            known.examples += observed.examples[kind][: max(0, CHECKED - len(known.examples))]

    def finish(self) -> list[Finding]:
        detector = _Detector.make(self.languages, [one for sample in self._samples.values() for one in sample.examples])
        swapped_files = [
            sample for sample in self._samples.values() if detector and detector.mostly_swapped(sample.examples)
        ]
        confirmed = {kind: _confirmed(known, kind, detector) for kind, known in self._suspects.items()}
        swapped, *wrong = (confirmed[kind] for kind in KINDS)
        self._removed = {SWAPPED: swapped.numbers, WRONG: np.unique(np.concatenate([one.numbers for one in wrong]))}
        if swapped_files:
            return [self._swapped_files(swapped_files)]
        return [*self._swapped(swapped), *self._wrong(wrong, detector)]

    def removed(self) -> Mapping[str, Numbers]:
        return self._removed

    def _swapped_files(self, samples: Sequence["_Sample"]) -> Finding:
        count = sum(sample.pairs for sample in samples)
        self._removed = {}  # swapping the files mends them
        checked = sum(len(sample.examples) for sample in samples)
        return Finding(
            SWAPPED,
            "serious",
            count,
            count / self._pairs,
            f"Of {checked:,} pairs that were checked, most have their source in the language of the targets and the reverse.",
            "Swap the two files, or the two languages after --languages.",
            tuple(_spread(samples[0].examples, MOST_EXAMPLES)),
            self.role,
        )

    def _swapped(self, found: Confirmed) -> list[Finding]:
        share = len(found.numbers) / max(1, self._pairs)
        explanation = "The source is in the language of the target and the target in that of the source."
        advice = "Swap the two sides of these pairs, or leave them out with --write."
        severity: Severity = "serious" if share > SERIOUS else "notable"
        shown = tuple(_spread(found.examples, MOST_EXAMPLES))
        one = Finding(SWAPPED, severity, len(found.numbers), share, explanation, advice, shown, self.role)
        return [one] if one.count else []

    def _wrong(self, found: Sequence[Confirmed], detector: "_Detector | None") -> list[Finding]:
        count = len(self._removed[WRONG])
        examples = sorted((example for one in found for example in one.examples), key=lambda one: one.detail)
        explanation = (
            "One side is not in its language, so a model learns to leave text untranslated or to mix languages."
        )
        advice = "Leave these pairs out with --write."
        if detector is None:
            explanation += (
                " Lines in a third language were not looked for: pip install 'transduce[doctor]' adds lingua."
            )
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


def _confirmed(known: _Suspects, kind: str, detector: "_Detector | None") -> Confirmed:
    """The suspects that are wrong: those that lingua confirms, and the unchecked ones if it confirmed nearly all."""
    numbers = np.concatenate([np.empty(0, np.int64), *known.numbers])
    if detector is None:
        return Confirmed(*((numbers, tuple(known.examples)) if "strange" not in kind else (numbers[:0], ())))
    details = detector.verdicts(kind, known.examples)
    wrong = np.array([bool(detail) for detail in details], bool)
    rest = numbers[len(wrong) :] if wrong.sum() >= TRUSTED * len(wrong) else numbers[:0]
    shown = [Example(e.file, e.line, e.source, e.target, d) for e, d in zip(known.examples, details, strict=True) if d]
    return Confirmed(np.concatenate([numbers[: len(wrong)][wrong], rest]), tuple(shown))


class _Detector:
    """Lingua for the two languages of a corpus, and for all languages it knows.

    Low accuracy mode: it loads in a second instead of twenty, and suspects have enough words for it.
    """

    def __init__(self, source: Any, target: Any) -> None:
        from lingua import LanguageDetectorBuilder

        self.languages = (source, target)
        self.two = LanguageDetectorBuilder.from_languages(source, target).with_low_accuracy_mode().build()
        self.all = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

    @staticmethod
    def make(codes: Sequence[str], sample: Sequence[Example]) -> "_Detector | None":
        """A detector, or None if lingua is not installed or does not know the languages."""
        if find_spec("lingua") is None or not sample:
            return None
        known = [_language(code) for code in codes] if codes else _main_languages(sample)
        return None if None in known or known[0] == known[1] else _Detector(*known)

    def mostly_swapped(self, sample: Sequence[Example]) -> bool:
        details = self.verdicts("swapped", sample)
        return len(sample) >= FEWEST_SAMPLED and sum(map(bool, details)) > MOSTLY * len(sample)

    def verdicts(self, kind: str, examples: Sequence[Example]) -> list[str]:
        """For each suspect what is wrong with it, or nothing."""
        sources, targets = [one.source for one in examples], [one.target for one in examples]
        if kind == "swapped":
            both = zip(self._others(sources, 0), self._others(targets, 1), strict=True)
            return ["source and target are swapped" if all(one) else "" for one in both]
        side = int(kind.endswith("target"))
        texts = (sources, targets)[side]
        if kind.startswith("strange"):
            return [f"the {KINDS[1 + side]} looks {name}" if name else "" for name in self._foreign(texts)]
        name = _name(self.languages[1 - side])
        return [f"the {kind} looks {name}" if wrong else "" for wrong in self._others(texts, side)]

    def _others(self, texts: list[str], side: int) -> list[bool]:
        """Whether each text is in the language of the other side."""
        return [one == self.languages[1 - side] for one in self.two.detect_languages_in_parallel_of(texts)]

    def _foreign(self, texts: list[str]) -> list[str]:
        """The name of the language of each text if it is a third one, or nothing."""
        found = []
        for values in self.all.compute_language_confidence_values_in_parallel(texts):
            own = sum(value.value for value in values if value.language in self.languages)
            found.append(_name(values[0].language) if values and own < FOREIGN else "")
        return found


def _language(code: str) -> Any:
    """Lingua's language for a code such as `de`, `deu` or `pt-BR`; None if it does not know it."""
    from lingua import Language

    short = code.lower().replace("_", "-").partition("-")[0]
    codes = {"iso_code_639_1": 2, "iso_code_639_3": 3}
    found = (
        one
        for one in Language.all()
        for name, length in codes.items()
        if len(short) == length and getattr(one, name).name.lower() == short
    )
    return next(found, None)


def _main_languages(sample: Sequence[Example]) -> list[Any]:
    """The most frequent language of each side; None if it is not that of most texts."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
    found = []
    for texts in ([one.source for one in sample[:200]], [one.target for one in sample[:200]]):
        languages = detector.detect_languages_in_parallel_of(texts)
        best = max(set(languages), key=languages.count)
        found.append(best if languages.count(best) > len(texts) / 2 else None)
    return found


def _name(language: Any) -> str:
    return str(language.name).capitalize()
