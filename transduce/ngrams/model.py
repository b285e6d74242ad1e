"""An n-gram model: the probability of a word after the words before it, with back-off to shorter histories.

Probabilities are natural logarithms. Knows words as strings, and no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

BEGIN, END, UNKNOWN_WORD = "<s>", "</s>", "<unk>"
NEVER = -99.0 * 2.302585092994046  # ARPA's -99 as a natural logarithm: the beginning of a sentence is never predicted

Ngram = tuple[str, ...]


@dataclass(frozen=True)
class NgramModel:
    """The n-grams of a text: log-probabilities of their last words, and the back-off weights of histories."""

    order: int
    probabilities: dict[Ngram, float]
    backoffs: dict[Ngram, float]  # a history without one has the weight 0, which is the logarithm of 1

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word that can be predicted, with the end of a sentence and the unknown word."""
        return frozenset(ngram[0] for ngram in self.probabilities if len(ngram) == 1) - {BEGIN}

    def known(self, word: str) -> str:
        """The word itself, or the unknown word."""
        return word if (word,) in self.probabilities else UNKNOWN_WORD

    def log_probability(self, word: str, history: Ngram) -> float:
        """log p(word | history), where an unknown word counts as `<unk>`; only the last order - 1 words matter."""
        word, history = (
            self.known(word),
            history[len(history) - self.order + 1 :] if len(history) >= self.order else history,
        )
        weight = 0.0
        while True:
            found = self.probabilities.get((*history, word))
            if found is not None or not history:
                return weight + (NEVER if found is None else found)
            weight += self.backoffs.get(history, 0.0)
            history = history[1:]

    def extended(self, history: Ngram, word: str) -> Ngram:
        """The history after one more word, no longer than the model needs it."""
        return (*history, self.known(word))[-(self.order - 1) :] if self.order > 1 else ()

    def sentence(self, words: Sequence[str]) -> float:
        """The log-probability of a whole sentence, its end included."""
        total, history = 0.0, self.extended((), BEGIN)
        for word in (*words, END):
            total += self.log_probability(word, history)
            history = self.extended(history, word)
        return total
