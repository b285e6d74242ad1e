"""Language detection with lingua, if it is installed: what is wrong with the language of a pair, or of a whole file.

Knows texts and languages; which pairs are suspicious is found in `transduce/diagnosis/profiles.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from transduce.diagnosis.findings import Example

MOSTLY = 0.8  # share of a sample that makes a whole file wrong
FEWEST_SAMPLED = 20
FOREIGN = 0.05  # probability of both languages together below which a text is in a third one
PASSAGE = 300  # characters of lines that are judged together: so many leave no doubt, even in low accuracy mode
PASSAGES = 10
FEWEST_PASSAGES = 3
CLOSE = ({"hr", "bs", "sr"}, {"nb", "nn", "da"}, {"id", "ms"})  # languages that passages hardly tell apart


@dataclass(frozen=True)
class Contradiction:
    """What two sides look like, in words, where it is not what the language codes say."""

    looks: str
    swapped: bool


def contradiction(codes: Sequence[str], sides: Sequence[Sequence[str]]) -> Contradiction | None:
    """Whether most texts of a side are clearly in another language than its code says; None without lingua."""
    if find_spec("lingua") is None:
        return None
    said, seen = [_language(code) for code in codes], [_language_of(texts) for texts in sides]
    if not any(one and other and not _are_close(one, other) for one, other in zip(said, seen, strict=True)):
        return None
    names = [f"the {side} look {_name(one)}" for side, one in zip(("sources", "targets"), seen, strict=True) if one]
    return Contradiction(" and ".join(names), swapped=seen == said[::-1])


def _language_of(texts: Sequence[str]) -> Any:
    """The language of most passages of these texts; None if there are few, or if they differ."""
    from lingua import LanguageDetectorBuilder

    every = list(_passages(texts))
    passages = every[:: max(1, len(every) // PASSAGES)]
    if len(passages) < FEWEST_PASSAGES:
        return None
    detector = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
    found = detector.detect_languages_in_parallel_of(passages)
    best = max(set(found), key=found.count)
    return best if found.count(best) > MOSTLY * len(found) else None


def _passages(texts: Sequence[str]) -> Iterator[str]:
    passage = ""
    for text in texts:
        passage += f"{text}\n"
        if len(passage) >= PASSAGE:
            yield passage
            passage = ""


def _are_close(one: Any, other: Any) -> bool:
    codes = {language.iso_code_639_1.name.lower() for language in (one, other)}
    return one == other or any(codes <= close for close in CLOSE)


def languages_of(codes: Sequence[str], sample: Sequence[Example]) -> tuple[Any, Any] | None:
    """Lingua's languages of the two sides, or None if it is not installed or does not know them."""
    if find_spec("lingua") is None or not sample:
        return None
    source, target = [_language(code) for code in codes] if codes else _main_languages(sample)
    return (source, target) if source and target else None


class Detector:
    """Lingua for the two languages of a corpus, and for all languages it knows.

    Low accuracy mode: it loads in a second instead of twenty, and suspects have enough words for it.
    """

    def __init__(self, source: Any, target: Any) -> None:
        from lingua import LanguageDetectorBuilder

        self.languages = (source, target)
        self.two = LanguageDetectorBuilder.from_languages(source, target).with_low_accuracy_mode().build()
        self.all = LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()

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
            return [f"the {('source', 'target')[side]} looks {name}" if name else "" for name in self._foreign(texts)]
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
