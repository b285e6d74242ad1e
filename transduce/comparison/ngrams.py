"""What is in the outputs: n-grams that one system gets and the other misses, repetition, and length.

Knows tokens only. Several references are one set: an n-gram is right if any reference has it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

LONGEST = 4  # tokens of an n-gram, as in BLEU
MOST = 15  # n-grams that are listed
Tokens = Sequence[str]
Tokenize = Callable[[str], Tokens]
NGram = tuple[str, ...]


@dataclass(frozen=True)
class NGramDifference:
    """An n-gram of the references, and how often each system gets it right."""

    text: str
    baseline: int
    system: int


@dataclass(frozen=True)
class OutputHabits:
    """Properties of the outputs of a system that scores do not show."""

    length_ratio: float  # tokens of the outputs / tokens of the nearest references
    repetitive: int  # outputs that repeat a token or phrase at once, where no reference does
    empty: int


def matched_ngrams(outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: Tokenize) -> Counter[NGram]:
    """How often each n-gram is right: at most as often as in the reference that has it most often."""
    total: Counter[NGram] = Counter()
    for output, accepted in zip(outputs, references, strict=True):
        most: Counter[NGram] = Counter()
        for reference in accepted:
            most |= Counter(_ngrams(tokenize(reference)))
        total.update(Counter(_ngrams(tokenize(output))) & most)
    return total


def _ngrams(tokens: Tokens) -> Iterator[NGram]:
    for n in range(1, LONGEST + 1):
        yield from (tuple(tokens[begin : begin + n]) for begin in range(len(tokens) - n + 1))


def ngram_differences(
    baseline: Counter[NGram], system: Counter[NGram]
) -> tuple[list[NGramDifference], list[NGramDifference]]:
    """The n-grams that the system gets more often than the baseline, and those that it gets less often."""
    gained, lost = system - baseline, baseline - system

    def largest(found: Counter[NGram]) -> list[NGramDifference]:
        order = sorted(found, key=lambda gram: (-found[gram], -len(gram), gram))[:MOST]
        return [NGramDifference(" ".join(gram), baseline[gram], system[gram]) for gram in order]

    return largest(gained), largest(lost)


def output_habits(outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: Tokenize) -> OutputHabits:
    """Length, repetition and empty outputs of a system."""
    length = expected = repetitive = 0
    for output, accepted in zip(outputs, references, strict=True):
        tokens, right = tokenize(output), [tokenize(reference) for reference in accepted]
        length += len(tokens)
        expected += min((len(one) for one in right), key=lambda n: (abs(n - len(tokens)), n))
        repetitive += repeats(tokens) and not any(map(repeats, right))
    return OutputHabits(length / max(expected, 1), repetitive, sum(not output.strip() for output in outputs))


def repeats(tokens: Tokens) -> bool:
    """Whether a token or a phrase of up to four tokens follows itself at once."""
    return any(
        tokens[begin : begin + n] == tokens[begin + n : begin + 2 * n]
        for n in range(1, LONGEST + 1)
        for begin in range(len(tokens) - 2 * n + 1)
    )
