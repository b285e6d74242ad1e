"""Which of two sets of texts a line resembles, by character trigrams: no language needs to be known."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

MOST_CHARACTERS = 200  # of a line that is looked at


def _trigrams(line: str) -> list[str]:
    text = f" {line[:MOST_CHARACTERS]} "
    return [text[at : at + 3] for at in range(len(text) - 2)]


def profile(lines: Sequence[str]) -> Mapping[str, float]:
    """The log-probability of each trigram; the empty string stands for trigrams that never occur."""
    counts = Counter(trigram for line in lines for trigram in _trigrams(line))
    every = math.log(counts.total() + len(counts) + 1)
    return {"": -every} | {trigram: math.log(count + 1) - every for trigram, count in counts.items()}


def resembles(line: str, one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether a line is more probable by the first profile than by the second."""
    return sum(one.get(t, one[""]) - other.get(t, other[""]) for t in _trigrams(line)) > 0
