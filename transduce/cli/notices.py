"""Warnings about a whole input: how many lines were cut, had unknown tokens, or were not UTF-8."""

from collections import Counter
from collections.abc import Iterable, Iterator

from transduce.translator import Translation, Translator
from transduce.translator.engines import say_to_stderr

NOT_UTF8 = "not valid UTF-8; the invalid bytes were read as \ufffd"
MOST_FEATURES = 40  # known features that are listed
MOST_UNSEEN = 5  # unknown features that are named


class Notices:
    """Counts over all lines, printed to stderr at the end."""

    def __init__(self, translator: Translator | None = None) -> None:
        self.known_features = [symbol[1:] for symbol in translator.sources.known] if translator else []
        self.expects_features, self.featureless = translator is not None and translator.reads_features, 0
        self.unseen_features: Counter[str] = Counter()
        self.cut = self.outputs_at_limit = self.unknown = self.newlines = self.empty = self.lost = 0
        self.undecodable = self.undecodable_prefixes = self.undecodable_terms = 0

    def add(self, translation: Translation) -> None:
        """Count one more line."""
        has_text = bool(translation.source.strip())
        self.cut += translation.cut > 0
        self.outputs_at_limit += translation.outputs_at_limit
        self.unknown += translation.unknown - len(translation.unseen_features)
        self.unseen_features.update(translation.unseen_features)
        self.newlines += translation.newlines
        self.lost += translation.lost
        self.empty += has_text and not translation.outputs
        self.featureless += self.expects_features and has_text and " ;" not in translation.source

    def add_all(self, translations: Iterable[Translation]) -> "Notices":
        """Count several more lines."""
        for translation in translations:
            self.add(translation)
        return self

    def print(self) -> None:
        """Print a line for each count that is not zero, and for each feature that is not known."""
        for line in self._about_features():
            say_to_stderr(line)
        for count, one, several, what in [
            (self.cut, "line was", "lines were", "longer than the model's maximum and cut"),
            (
                self.outputs_at_limit,
                "output",
                "outputs",
                "reached the length limit and may be incomplete: raise it with --max-extra",
            ),
            (
                self.featureless,
                "line has",
                "lines have",
                "no features: this model expects a word, a tab, and the features",
            ),
            (
                self.unknown,
                "source character or symbol is",
                "source characters or symbols are",
                "not in the vocabulary",
            ),
            (self.lost, "placeholder is", "placeholders are", "missing in the outputs"),
            (self.newlines, "line break", "line breaks", "in outputs became spaces"),
            (self.empty, "line has", "lines have", "no output: every candidate has probability 0"),
            (self.undecodable, "line is", "lines are", NOT_UTF8),
            (self.undecodable_prefixes, "prefix is", "prefixes are", NOT_UTF8),
            (self.undecodable_terms, "line of terms is", "lines of terms are", NOT_UTF8),
        ]:
            if count:
                say_to_stderr(f"{count} {one if count == 1 else several} {what}")

    def _about_features(self) -> Iterator[str]:
        known = ", ".join(self.known_features[:MOST_FEATURES])
        more = len(self.known_features) - MOST_FEATURES
        known += f" and {more} more" if more > 0 else ""
        for feature, count in self.unseen_features.most_common(MOST_UNSEEN):
            lines = f"{count} line{'s' * (count > 1)}"
            yield f"feature {feature} did not occur in training and is unknown ({lines}); known features: {known}"
        if (others := len(self.unseen_features) - MOST_UNSEEN) > 0:
            yield f"{others} more feature{'s' * (others > 1)} did not occur in training"
