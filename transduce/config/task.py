"""Infer the task of a corpus (translation, symbols or speech) and its units from counts of its lines.

Sees only counts, never the data. `transduce/config/fitted.py` builds the rest of the recipe on the result.
"""

from dataclasses import dataclass
from typing import Any

SYMBOL_KINDS = 500  # at most this many distinct whitespace-separated tokens, each of them frequent: symbols, not words
OFTEN = 10  # mean number of occurrences of a frequent token
# In scripts without spaces: the fewest words per line of a sentence, as opposed to a name or a term; and the fewest words
# per line to be treated as translation if `data.languages` names two languages.
SENTENCE_WORDS = 3.0
PHRASE_WORDS = 2.5
MANY_UTTERANCES = 20_000  # with fewer, letters are learned better than subwords
MANY_IDENTICAL = 0.05  # of all pairs: more than the usual share of untranslated lines in a parallel corpus


@dataclass(frozen=True)
class SideCounts:
    """Statistics of one side of a corpus."""

    tokens_per_line: float  # whitespace-separated
    distinct_tokens: int  # in a sample of the corpus
    characters_per_line: float
    unspaced_words_per_line: float = 0.0  # estimated number of words in scripts without spaces
    alphabet: int = 0  # characters that make up nearly all of the text

    @property
    def words_per_line(self) -> float:
        return max(self.tokens_per_line, self.unspaced_words_per_line)

    @property
    def unspaced(self) -> bool:
        """Whether words are not separated by spaces, as in Japanese, Chinese or Thai."""
        return self.unspaced_words_per_line >= 1.5 * self.tokens_per_line

    def tokens_in(self, units: str) -> float:
        """The approximate number of tokens per line in these units, with `</s>`; subwords are a little shorter than words."""
        per_line = {
            "word": self.tokens_per_line,
            "char": self.characters_per_line,
        }
        return per_line.get(units, 1.3 * self.words_per_line) + 1


@dataclass(frozen=True)
class Counts:
    """The counts of a corpus by which settings are chosen."""

    pairs: int
    source: SideCounts
    target: SideCounts
    features: bool = False  # whether there is a column of features
    languages: tuple[str, ...] = ()  # source and target, if given
    identical: int = 0  # pairs whose source equals their target
    audio: bool = False  # whether sources are recordings

    @property
    def between_languages(self) -> bool:
        return len(set(self.languages)) == 2

    @property
    def words_per_line(self) -> float:
        """The smaller value of both sides: a name may be long in one script."""
        return min(self.source.words_per_line, self.target.words_per_line)

    def has_symbols(self, side: SideCounts) -> bool:
        """Whether a side consists of a few distinct tokens that occur often."""
        few = side.distinct_tokens <= SYMBOL_KINDS and not side.unspaced
        return few and side.tokens_per_line * self.pairs > OFTEN * side.distinct_tokens


def infer_task(counts: Counts) -> tuple[str, str]:
    """The task and the reason: symbols if targets are few distinct tokens or single words, or if there are features."""
    target = counts.target
    if counts.audio:
        return "speech", "because sources are recordings"
    if counts.features:
        return "symbols", "because words come with features"
    unspaced = counts.source.unspaced or target.unspaced
    if unspaced and counts.between_languages and counts.words_per_line >= PHRASE_WORDS:
        return "translation", f"because lines are phrases or sentences ({_about(counts)})"
    if counts.has_symbols(target):
        return "symbols", f"because targets are made of {target.distinct_tokens} different symbols"
    if unspaced and counts.words_per_line >= SENTENCE_WORDS:
        return "translation", f"because lines are sentences ({_about(counts)})"
    if unspaced:
        return (
            "symbols",
            f"because lines are names or single words ({_about(counts)}); for phrases, set data.task=translation",
        )
    if target.tokens_per_line < 1.2:
        return "symbols", f"because targets are single words ({target.tokens_per_line:.1f} a line)"
    return "translation", f"because targets are text ({target.tokens_per_line:.1f} words a line)"


def _about(counts: Counts) -> str:
    return f"about {counts.words_per_line:.1f} words a line, in a script without spaces"


def infer_units(counts: Counts, task: str) -> tuple[str, str]:
    """The units of source and target: subwords for text, letters or whole symbols otherwise."""
    if task == "speech":
        return ("bpe", "bpe") if counts.pairs > MANY_UTTERANCES else ("char", "char")
    return _symbol_units(counts) if task == "symbols" else ("bpe", "bpe")


def text_settings(counts: Counts, task: str, vocabulary_size: int) -> dict[str, Any]:
    """The settings of `data` that depend on the task and the writing system."""
    # NFKC rewrites full-width punctuation and Thai and Lao vowels: outputs would be spelt differently from the references.
    normalization = "identity" if task == "symbols" or counts.target.unspaced else "nmt_nfkc"
    return {
        "vocabulary_size": _with_room_for_characters(vocabulary_size, counts),
        "normalization": normalization,
        "unknown": "bytes" if task == "translation" else "unk",
        "identical": "drop" if _drops_identical(counts, task) else "keep",
    }


def text_reasons(counts: Counts, task: str) -> list[str]:
    """Explanations of these settings for the user."""
    if not counts.identical:
        return []
    pairs = f"{counts.identical:,} pairs whose source equals their target"
    if _drops_identical(counts, task):
        return [f"{pairs} are left out as untranslated; to keep them, set data.identical=keep"]
    return [f"{pairs} are kept; to leave them out, set data.identical=drop"]


def _drops_identical(counts: Counts, task: str) -> bool:
    """Whether to drop identical pairs: only in translation, and only if there are few; if many, copying is part of the task."""
    many = counts.identical > MANY_IDENTICAL * counts.pairs and not counts.between_languages
    return task == "translation" and not many


def _with_room_for_characters(vocabulary_size: int, counts: Counts) -> int:
    """Enlarge the vocabulary for scripts with thousands of characters, each of which takes the place of a longer piece."""
    characters = counts.source.alphabet + counts.target.alphabet
    return vocabulary_size if characters <= vocabulary_size / 4 else vocabulary_size + 100 * (characters // 100 + 1)


def _symbol_units(counts: Counts) -> tuple[str, str]:
    """Whether each side of a symbols task is read as whole symbols or letter by letter."""

    def units(side: SideCounts) -> str:
        several = side.tokens_per_line >= max(1.2, side.characters_per_line / 20)
        return "word" if several and counts.has_symbols(side) else "char"

    # Features are written without spaces: as words, each combination of features would be its own symbol.
    return "char" if counts.features else units(counts.source), units(counts.target)
