"""Warnings about a whole input: how many lines were cut, had unknown tokens, or were not UTF-8, and which are the first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from transduce.cli.lines import Lines
from transduce.data import iconv_command
from transduce.translator import Translation, Translator
from transduce.translator.engines import say_to_stderr

NOT_UTF8 = "not valid UTF-8; the invalid bytes were read as \ufffd"
MOST_FEATURES = 40  # known features that are listed
MOST_UNSEEN = 5  # unknown features that are named
MOST_NAMED = 5  # lines and unknown characters that are named
MOST_LOOKED_AT = 100  # lines whose unknown characters are looked up, which takes time


@dataclass
class FirstLines:
    """The numbers of the first lines that a warning is about, from 1, and how many there are: an input may have no end."""

    first: list[int] = field(default_factory=list)
    count: int = 0
    last: int = 0

    def add(self, line: int) -> None:
        """Count a line; several outputs or sentences may be of one line, and 0 is a line that is not known."""
        if line in (0, self.last):
            return
        self.count, self.last = self.count + 1, line
        if len(self.first) < MOST_NAMED:
            self.first.append(line)


class Notices:
    """Counts over all lines, printed to stderr at the end."""

    def __init__(self, translator: Translator | None = None, divide: str = "") -> None:
        self.longest = translator.longest_source if translator else 0  # tokens of a source; 0 if unknown
        self.translator, self.divide = translator, divide  # `divide` is advice on lines that were cut
        self.known_features = [symbol[1:] for symbol in translator.sources.known] if translator else []
        self.expects_features, self.featureless = translator is not None and translator.reads_features, 0
        self.unseen_features: Counter[str] = Counter()
        self.cut = self.outputs_at_limit = self.unknown = self.newlines = self.empty = self.lost = 0
        self.undecodable = self.undecodable_prefixes = self.undecodable_terms = 0
        self.first_undecodable: dict[str, Lines] = {}  # by the name of the count
        self.lines: defaultdict[str, FirstLines] = defaultdict(FirstLines)  # by the name of the count
        self.unknown_symbols: dict[str, None] = {}  # the first of them, in their order

    def add(self, translation: Translation, line: int = 0) -> None:
        """Count one more translation, of the line of this number, from 1; 0 if it is not known."""
        has_text = bool(translation.source.strip())
        self.cut += translation.cut > 0
        self.outputs_at_limit += translation.outputs_at_limit
        self.unknown += translation.unknown - len(translation.unseen_features)
        self.unseen_features.update(translation.unseen_features)
        self.newlines += translation.newlines
        self.lost += translation.lost
        self.empty += has_text and not translation.outputs
        self.featureless += self.expects_features and has_text and " ;" not in translation.source
        if translation.unknown > len(translation.unseen_features):
            self._name_unknown(translation)
            self.lines["unknown"].add(line)
        if translation.cut:
            self.lines["cut"].add(line)
        if translation.outputs_at_limit:
            self.lines["outputs_at_limit"].add(line)

    def add_undecodable(self, name: str, lines: Lines | None) -> None:
        """Count the lines of a file that are not valid UTF-8."""
        if lines and lines.undecodable:
            setattr(self, name, lines.undecodable)
            self.first_undecodable[name] = lines

    def _name_unknown(self, translation: Translation) -> None:
        if self.translator is None or len(self.unknown_symbols) > MOST_NAMED:
            return
        if self.lines["unknown"].count >= MOST_LOOKED_AT:
            return
        source, vocabulary = translation.source, self.translator.vocabularies.source
        reads_features = self.translator.reads_features
        text = (
            self.translator.sources.word(source) if reads_features else self.translator.forms.learned([source])[0].text
        )
        for unknown in vocabulary.unknown_texts(text):
            symbols = [unknown] if vocabulary.has_only_symbols else list(unknown)
            self.unknown_symbols |= dict.fromkeys(symbols[: MOST_NAMED + 1])

    def add_all(self, translations: Iterable[Translation], line: int = 0) -> "Notices":
        """Count several more translations, all of this line."""
        for translation in translations:
            self.add(translation, line)
        return self

    def add_numbered(self, translations: Iterable[Translation]) -> "Notices":
        """Count the translations of all lines of an input."""
        for line, translation in enumerate(translations, 1):
            self.add(translation, line)
        return self

    def print(self) -> None:
        """Print a line for each count that is not zero, and for each feature that is not known."""
        for line in self._about_features():
            say_to_stderr(line)
        for count, one, several, what in [
            (self.cut, "line was", "lines were", self._about_cut()),
            (
                self.outputs_at_limit,
                "output",
                "outputs",
                f"reached the length limit and may be incomplete{self._lines_of('outputs_at_limit')}: "
                "raise the limit with --max-extra",
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
                f"not in the vocabulary{self._named_unknown()}",
            ),
            (self.lost, "placeholder is", "placeholders are", "missing in the outputs"),
            (self.newlines, "line break", "line breaks", "in outputs became spaces"),
            (self.empty, "line has", "lines have", "no output: every candidate has probability 0"),
            (self.undecodable, "line is", "lines are", self._about_undecodable("undecodable")),
            (self.undecodable_prefixes, "prefix is", "prefixes are", self._about_undecodable("undecodable_prefixes")),
            (
                self.undecodable_terms,
                "line of terms is",
                "lines of terms are",
                self._about_undecodable("undecodable_terms"),
            ),
        ]:
            if count:
                say_to_stderr(f"{count} {one if count == 1 else several} {what}")

    def _about_cut(self) -> str:
        maximum = f"maximum of {self.longest:,} tokens" if self.longest else "maximum"
        return f"longer than the model's {maximum} and cut{self._lines_of('cut')}{self.divide}"

    def _lines_of(self, name: str) -> str:
        """The first lines of a count, in parentheses; empty if they are not known."""
        if not (lines := self.lines[name]).count:
            return ""
        more = lines.count - len(lines.first)
        named = ", ".join(f"{line:,}" for line in lines.first) + (f" and {more:,} more" if more else "")
        return f" (line{'s' * (lines.count > 1)} {named})"

    def _named_unknown(self) -> str:
        named = [repr(one)[1:-1] if not one.isprintable() else one for one in self.unknown_symbols]
        more = ", \u2026" * (len(named) > MOST_NAMED)
        symbols = f": {' '.join(named[:MOST_NAMED])}{more}" if named else ""
        lines = self.lines["unknown"]
        return f"{symbols} (first in line {lines.first[0]:,})" if lines.count else symbols

    def _about_undecodable(self, name: str) -> str:
        if name not in self.first_undecodable:
            return NOT_UTF8
        lines = self.first_undecodable[name]
        command = "`iconv -f LATIN1 -t UTF-8`" if lines.path == "-" else iconv_command("LATIN1", lines.path)
        convert = f"convert the input, for example with {command} if it is Latin-1"
        return f"{NOT_UTF8} (first in line {lines.first_undecodable:,}): {convert}"

    def _about_features(self) -> Iterator[str]:
        known = ", ".join(self.known_features[:MOST_FEATURES])
        more = len(self.known_features) - MOST_FEATURES
        known += f" and {more} more" if more > 0 else ""
        for feature, count in self.unseen_features.most_common(MOST_UNSEEN):
            lines = f"{count} line{'s' * (count > 1)}"
            yield f"feature {feature} did not occur in training and is unknown ({lines}); known features: {known}"
        if (others := len(self.unseen_features) - MOST_UNSEEN) > 0:
            yield f"{others} more feature{'s' * (others > 1)} did not occur in training"
