"""The task and the units of a corpus, inferred from counts of its lines: translation, or symbols.

Sees counts only, never the data. `transduce/config/fitted.py` builds the rest of the recipe around the answer.
"""

from dataclasses import dataclass
from typing import Any

SYMBOL_KINDS = 500  # at most this many different whitespace-separated tokens, each of them often: symbols, not words
OFTEN = 10  # times in the mean
# Scripts without spaces: from how many words on a line is a sentence, and not a name or a term; and from how many on it
# is worth translating where `data.languages` names two languages.
SENTENCE_WORDS = 3.0
PHRASE_WORDS = 2.5
MANY_IDENTICAL = 0.05  # of all pairs: more than untranslated lines usually are in a parallel corpus


@dataclass(frozen=True)
class Side:
    """What one side of a corpus looks like."""

    tokens_per_line: float  # whitespace-separated
    distinct_tokens: int  # in a sample of the corpus
    characters_per_line: float
    unspaced_words_per_line: float = 0.0  # estimated words in scripts that put no spaces between them
    alphabet: int = 0  # characters that make up nearly all of the text

    @property
    def words_per_line(self) -> float:
        return max(self.tokens_per_line, self.unspaced_words_per_line)

    @property
    def unspaced(self) -> bool:
        """Whether spaces do not separate its words: Japanese, Chinese, Thai, and others."""
        return self.unspaced_words_per_line >= 1.5 * self.tokens_per_line

    def tokens_in(self, units: str) -> float:
        """How many tokens a line has in these units, roughly: subwords are a little shorter than words; `</s>` ends it."""
        per_line = {
            "word": self.tokens_per_line,
            "char": self.characters_per_line,
        }
        return per_line.get(units, 1.3 * self.words_per_line) + 1


@dataclass(frozen=True)
class Counts:
    """What the rule looks at."""

    pairs: int
    source: Side
    target: Side
    features: bool = False  # whether a column of features stands beside the words
    languages: tuple[str, ...] = ()  # source and target, where given
    identical: int = 0  # pairs whose source is their target

    @property
    def between_languages(self) -> bool:
        return len(set(self.languages)) == 2

    @property
    def words_per_line(self) -> float:
        """Of the side with fewer: a name may be long in one script."""
        return min(self.source.words_per_line, self.target.words_per_line)

    def has_symbols(self, side: Side) -> bool:
        """Whether the tokens of a side are few and come again and again."""
        few = side.distinct_tokens <= SYMBOL_KINDS and not side.unspaced
        return few and side.tokens_per_line * self.pairs > OFTEN * side.distinct_tokens


def infer_task(counts: Counts) -> tuple[str, str]:
    """Symbols where the target is made of few kinds of tokens, or of single words, or words come with features."""
    target = counts.target
    if counts.features:
        return "symbols", "words come with features"
    unspaced = counts.source.unspaced or target.unspaced
    if unspaced and counts.between_languages and counts.words_per_line >= PHRASE_WORDS:
        return "translation", f"lines are phrases or sentences ({_about(counts)})"
    if counts.has_symbols(target):
        return "symbols", f"targets are made of {target.distinct_tokens} different symbols"
    if unspaced and counts.words_per_line >= SENTENCE_WORDS:
        return "translation", f"lines are sentences ({_about(counts)})"
    if unspaced:
        return "symbols", f"lines are names or single words ({_about(counts)}); for phrases, set data.task=translation"
    if target.tokens_per_line < 1.2:
        return "symbols", f"targets are single words ({target.tokens_per_line:.1f} a line)"
    return "translation", f"targets are text ({target.tokens_per_line:.1f} words a line)"


def _about(counts: Counts) -> str:
    return f"about {counts.words_per_line:.1f} words a line, in a script without spaces"


def infer_units(counts: Counts, task: str) -> tuple[str, str]:
    """The units of source and target: subwords for text, letters or whole symbols otherwise."""
    return _symbol_units(counts) if task == "symbols" else ("bpe", "bpe")


def text_settings(counts: Counts, task: str, vocabulary_size: int) -> dict[str, Any]:
    """The settings of `data` that follow from the task and the writing system."""
    # NFKC rewrites full-width punctuation and Thai and Lao vowels: outputs would not be spelt as the references are.
    normalization = "identity" if task == "symbols" or counts.target.unspaced else "nmt_nfkc"
    return {
        "vocabulary_size": _with_room_for_characters(vocabulary_size, counts),
        "normalization": normalization,
        "unknown": "bytes" if task == "translation" else "unk",
        "identical": "drop" if _drops_identical(counts, task) else "keep",
    }


def text_reasons(counts: Counts, task: str) -> list[str]:
    """What people should know of these settings."""
    if not counts.identical:
        return []
    pairs = f"{counts.identical:,} pairs whose source equals their target"
    if _drops_identical(counts, task):
        return [f"{pairs} are left out, as untranslated lines; data.identical=keep keeps them"]
    return [f"{pairs} are kept; data.identical=drop leaves them out"]


def _drops_identical(counts: Counts, task: str) -> bool:
    """Only translations, and only where such pairs are stray: where they are many, copying is part of what is to be learned."""
    many = counts.identical > MANY_IDENTICAL * counts.pairs and not counts.between_languages
    return task == "translation" and not many


def _with_room_for_characters(vocabulary_size: int, counts: Counts) -> int:
    """Every character is a piece of its own first: thousands of them must not take the place of longer pieces."""
    characters = counts.source.alphabet + counts.target.alphabet
    return vocabulary_size if characters <= vocabulary_size / 4 else vocabulary_size + 100 * (characters // 100 + 1)


def _symbol_units(counts: Counts) -> tuple[str, str]:
    """Whether each side of a symbols task is read as whole symbols or letter by letter."""

    def units(side: Side) -> str:
        several = side.tokens_per_line >= max(1.2, side.characters_per_line / 20)
        return "word" if several and counts.has_symbols(side) else "char"

    # Features are written without spaces between them: as words, each set of them would be a symbol of its own.
    return "char" if counts.features else units(counts.source), units(counts.target)
