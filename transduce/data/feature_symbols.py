"""The features of a source, such as `gehen ;V;PST`: which of them a model knows, and `<unk>` in the place of the others.

Without it, sentencepiece would split an unknown feature: `;PLURAL` begins with the known symbol `;PL`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.config import DataConfig
from transduce.config.columns import feature_symbols
from transduce.text import UNKNOWN, Vocabulary


@dataclass(frozen=True)
class FeatureEncoder:
    """Encodes sources, each feature as one symbol; without known features, it encodes them as any text."""

    vocabulary: Vocabulary
    known: tuple[str, ...] = ()  # symbols such as `;PST`, sorted

    @staticmethod
    def of(data: DataConfig, vocabulary: Vocabulary) -> "FeatureEncoder":
        """The encoder of a model, which knows features if its training data had a column of them."""
        reads_features = data.layout is not None and bool(data.layout.features)
        return FeatureEncoder(vocabulary, vocabulary.feature_symbols if reads_features else ())

    def encode(self, texts: Sequence[str], every_core: bool = False) -> list[list[int]]:
        """The ids of each text, `</s>` last."""
        features = [self.features(text) for text in texts] if self.known else []
        ids = self.vocabulary.encode([*map(self._with_stand_ins, texts)] if features else texts, every_core)
        for row, symbols in zip(ids, features, strict=False):
            for at, symbol in enumerate(symbols, len(row) - 1 - len(symbols)):  # they are the last ids before `</s>`
                row[at] = row[at] if symbol in self.known else UNKNOWN
        return ids

    def features(self, text: str) -> list[str]:
        """The symbols at the end of a source; none if what follows the last ` ;` is no list of features."""
        _, found, features = text.rpartition(" ;")
        return feature_symbols(features) if found and features.split() == [features] else []

    def word(self, text: str) -> str:
        """A source without the features at its end."""
        return text.rpartition(" ;")[0] if self.features(text) else text

    def unseen(self, text: str) -> tuple[str, ...]:
        """The features of a source that the model does not know, as people write them: `PLURAL`."""
        return tuple(symbol[1:] for symbol in self.features(text) if symbol not in self.known) if self.known else ()

    def _with_stand_ins(self, text: str) -> str:
        """The text with a known symbol in the place of each unknown one, so that each is one id."""
        if not self.unseen(text):
            return text
        known = [symbol if symbol in self.known else self.known[0] for symbol in self.features(text)]
        return f"{self.word(text)} {''.join(known)}"
