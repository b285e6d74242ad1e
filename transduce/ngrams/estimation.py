"""Estimates n-gram models by interpolated modified Kneser-Ney smoothing (Chen and Goodman 1999).

The longest n-grams are counted as they occur. Shorter ones are counted by how many different words precede them, except at the
beginning of a sentence, which nothing precedes. Each count is discounted by one of three amounts, and what is saved goes to the shorter
n-gram; single words are interpolated with the uniform distribution over the vocabulary. So the probabilities after any history sum to 1.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transduce.errors import DataError, SettingError
from transduce.ngrams.model import BEGIN, END, NEVER, UNKNOWN_WORD, Ngram, NgramModel

MOST_ORDER = 6
_USUAL = (0.5, 1.0, 1.5)  # discounts where a text is too small to estimate them


def estimate(sentences: Iterable[Sequence[str]], order: int = 3, vocabulary: Iterable[str] = ()) -> NgramModel:
    """The model of these sentences; words of `vocabulary` that do not occur share what is left for single words."""
    if not 1 <= order <= MOST_ORDER:
        raise SettingError(f"order = {order}: an n-gram model has an order from 1 to {MOST_ORDER}")
    raw = _count(sentences, order)
    if not raw[1]:
        raise DataError("no words to estimate an n-gram model from: every line is empty")
    words = {END, UNKNOWN_WORD, *vocabulary, *(ngram[0] for ngram in raw[1])} - {BEGIN}
    below: dict[Ngram, float] = {(): 1 / len(words)}
    probabilities: dict[Ngram, float] = {}
    backoffs: dict[Ngram, float] = {}
    for length in range(1, order + 1):
        counts = dict(raw[length]) if length == order else _preceded(raw[length], raw[length + 1])
        tables = _histories(counts)
        counts |= {(word,): 0 for word in words if (word,) not in counts} if length == 1 else {}
        below = {ngram: tables[ngram[:-1]].share(count) + tables[ngram[:-1]].saved * below[ngram[1:] if length > 1 else ()]
                 for ngram, count in counts.items()}  # fmt: skip
        probabilities |= {ngram: math.log(value) for ngram, value in below.items()}
        backoffs |= {history: math.log(table.saved) for history, table in tables.items() if history}
    return NgramModel(order, {(BEGIN,): NEVER, **probabilities}, backoffs)


def _count(sentences: Iterable[Sequence[str]], order: int) -> list[Counter[Ngram]]:
    """How often each n-gram occurs, by its length; the beginning of a sentence is only ever a history."""
    counts: list[Counter[Ngram]] = [Counter() for _ in range(order + 1)]
    for words in sentences:
        if words:
            tokens = (BEGIN, *words, END)
            for length in range(1, order + 1):
                counts[length].update(tokens[at : at + length] for at in range(len(tokens) - length + 1))
    del counts[1][(BEGIN,)]
    return counts


def _preceded(raw: Counter[Ngram], longer: Counter[Ngram]) -> dict[Ngram, int]:
    """How many different words precede each n-gram; at the beginning of a sentence, how often it occurs."""
    before = Counter(ngram[1:] for ngram in longer)
    return {ngram: count if ngram[0] == BEGIN else before[ngram] for ngram, count in raw.items()}


@dataclass(frozen=True)
class _History:
    """What follows a history: the sum of the counts, and the share of it that discounts save."""

    total: int
    saved: float
    discounts: tuple[float, float, float]

    def share(self, count: int) -> float:
        return (count - _discount(count, self.discounts)) / self.total


def _histories(counts: dict[Ngram, int]) -> dict[Ngram, _History]:
    discounts = _discounts(Counter(counts.values()))
    totals: dict[Ngram, int] = defaultdict(int)
    saved: dict[Ngram, float] = defaultdict(float)
    for ngram, count in counts.items():
        totals[ngram[:-1]] += count
        saved[ngram[:-1]] += _discount(count, discounts)
    return {history: _History(total, saved[history] / total, discounts) for history, total in totals.items()}


def _discount(count: int, discounts: tuple[float, float, float]) -> float:
    return discounts[min(count, 3) - 1] if count else 0.0


def _discounts(of_counts: Counter[int]) -> tuple[float, float, float]:
    """The discounts of counts of 1, 2 and more, from how many n-grams occur once, twice, ..."""
    once, twice, thrice, often = (of_counts[number] for number in (1, 2, 3, 4))
    if not (once and twice and thrice):
        return _USUAL
    share = once / (once + 2 * twice)
    found = (1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, 3 - 4 * share * often / thrice)
    possible = all(0 < amount < number for number, amount in enumerate(found, 1)) and found[2] < 3
    return found if possible else _USUAL
