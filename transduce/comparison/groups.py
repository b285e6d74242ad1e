"""Groups of sentences: by length, by the rarest word, by unseen words, numbers, names and labels.

A group answers where two systems differ. This module knows the texts of the test set and word counts, not systems or scores.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LENGTH_GROUPS = 4
FREQUENCIES = (1, 10, 100, 1_000)  # where a new group of frequencies begins; below the first, a word is unseen
MOST_LABELS = 50  # the largest ones; others are left out
_NUMBER = re.compile(r"\d")
_EDGES = re.compile(r"^\W+|\W+$")


@dataclass(frozen=True)
class Group:
    """Some sentences of the test set, and what they have in common."""

    kind: str  # "source length"
    name: str  # "1 to 7 words"
    sentences: NDArray[np.intp]


@dataclass(frozen=True)
class SourceUnits:
    """What the length of a source counts and what can be rare in it: words, or characters where a source is one word."""

    name: str
    split: Callable[[str], Sequence[str]]

    @staticmethod
    def of(sources: Sequence[str], characters: bool) -> "SourceUnits":
        """Characters where the model reads characters, or where sources have no spaces."""
        one_word = sum(len(source.split()) for source in sources) < 1.2 * len(sources)
        return SourceUnits("characters", _characters) if characters or one_word else SourceUnits("words", words)


def words(text: str) -> list[str]:
    """Words in lower case, without the punctuation around them."""
    bare = (_EDGES.sub("", word) for word in text.lower().split())
    return [word for word in bare if word]


def _characters(text: str) -> list[str]:
    return [character for character in text if not character.isspace()]


# --- groups ------------------------------------------------------------------------------------------------------


def make_groups(
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    units: SourceUnits,
    frequencies: Mapping[str, int] | None = None,
    labels: Sequence[str] = (),
) -> list[Group]:
    """All groups that this test set has; a kind with a single group is left out, since it tells nothing."""
    kinds = [by_length(sources, units)]
    if frequencies is not None:
        kinds += [by_rarest(sources, units, frequencies), by_unseen(sources, units, frequencies)]
    kinds += [by_numbers(sources), by_names(sources, references), by_label(labels)]
    return [group for kind in kinds if len(kind) > 1 for group in kind]


def by_length(sources: Sequence[str], units: SourceUnits) -> list[Group]:
    """Four groups of about the same size."""
    lengths = [len(units.split(source)) for source in sources]
    cuts = np.quantile(lengths, np.arange(1, LENGTH_GROUPS) / LENGTH_GROUPS, method="lower")
    edges = sorted({min(lengths), *(int(cut) + 1 for cut in cuts if cut < max(lengths)), max(lengths) + 1})
    names = {low: _range(low, high - 1, units.name) for low, high in pairwise(edges)}
    return _grouped("source length", (names[max(low for low in names if low <= n)] for n in lengths), names.values())


def by_rarest(sources: Sequence[str], units: SourceUnits, frequencies: Mapping[str, int]) -> list[Group]:
    """By how often the rarest word of the source is in the training data."""
    rarest = [min((frequencies.get(one, 0) for one in units.split(source)), default=0) for source in sources]
    edges = [0, *FREQUENCIES]
    names = [_frequency(low, high) for low, high in pairwise([*edges, 0])]
    kind = f"training frequency of the rarest {units.name.removesuffix('s')}"
    return _grouped(kind, (names[sum(n >= edge for edge in FREQUENCIES)] for n in rarest), names)


def by_unseen(sources: Sequence[str], units: SourceUnits, frequencies: Mapping[str, int]) -> list[Group]:
    """By the number of words in the source that the training data does not have."""
    names = ["none", "one", "two or more"]
    counts = (sum(one not in frequencies for one in units.split(source)) for source in sources)
    return _grouped(f"{units.name} not in the training data", (names[min(n, 2)] for n in counts), names)


def by_numbers(sources: Sequence[str]) -> list[Group]:
    """By whether the source has a digit."""
    names = ["with numbers", "without numbers"]
    return _grouped("numbers", (names[not _NUMBER.search(source)] for source in sources), names)


def by_names(sources: Sequence[str], references: Sequence[Sequence[str]]) -> list[Group]:
    """By whether the source has a name: a capitalised word that is also in a reference."""
    names = ["with names", "without names"]
    pairs = zip(sources, references, strict=True)
    return _grouped("names", (names[not has_name(source, accepted)] for source, accepted in pairs), names)


def has_name(source: str, accepted: Sequence[str]) -> bool:
    """Whether a capitalised word of two letters or more is in the source and in a reference.

    The capital alone says little: sentences begin with one, and German nouns have one.
    """
    copied = {_EDGES.sub("", word) for text in accepted for word in text.split()}
    found = (_EDGES.sub("", word) for word in source.split())
    return any(len(word) > 1 and word[0].isupper() and word in copied for word in found)


def by_label(labels: Sequence[str]) -> list[Group]:
    """By the label of each line, such as its corpus; the most frequent labels first."""
    return _grouped("label", labels, [name for name, _ in Counter(labels).most_common(MOST_LABELS)])


def _grouped(kind: str, names: Iterable[str], order: Iterable[str]) -> list[Group]:
    of_sentence = np.array(list(names), dtype=object)
    found = [(name, np.flatnonzero(of_sentence == name)) for name in order]
    return [Group(kind, name, sentences) for name, sentences in found if len(sentences)]


def _range(low: int, high: int, units: str) -> str:
    if low == high:
        return f"{low} {units if low != 1 else units.removesuffix('s')}"
    return f"{low} to {high} {units}"


def _frequency(low: int, high: int) -> str:
    if low == 0:
        return "unseen"
    return f"{low:,} to {high - 1:,} times" if high else f"{low:,} times or more"
