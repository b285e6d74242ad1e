"""The task and the units of a corpus, inferred from counts of its lines: translation, or symbols.

Sees counts only, never the data. `transduce/config/fitted.py` builds the rest of the recipe around the answer.
"""

from dataclasses import dataclass

SYMBOL_KINDS = 500  # at most this many different whitespace-separated tokens, each of them often: symbols, not words
OFTEN = 10  # times in the mean


@dataclass(frozen=True)
class Side:
    """What one side of a corpus looks like."""

    tokens_per_line: float  # whitespace-separated
    distinct_tokens: int  # in a sample of the corpus
    characters_per_line: float

    def tokens_in(self, units: str) -> float:
        """How many tokens a line has in these units, roughly: subwords are a little shorter than words; `</s>` ends it."""
        per_line = {
            "word": self.tokens_per_line,
            "char": self.characters_per_line,
            "bpe": 1.3 * self.tokens_per_line,
        }
        return per_line[units] + 1


@dataclass(frozen=True)
class Counts:
    """What the rule looks at."""

    pairs: int
    source: Side
    target: Side
    features: bool = False  # whether a column of features stands beside the words

    def has_symbols(self, side: Side) -> bool:
        """Whether the tokens of a side are few and come again and again."""
        few = side.distinct_tokens <= SYMBOL_KINDS
        return few and side.tokens_per_line * self.pairs > OFTEN * side.distinct_tokens


def infer_task(counts: Counts) -> tuple[str, str]:
    """Symbols where the target is made of few kinds of tokens, or of single words, or words come with features."""
    target = counts.target
    if counts.features:
        return "symbols", "words come with features"
    if target.tokens_per_line < 1.2:
        return "symbols", f"targets are single words ({target.tokens_per_line:.1f} a line)"
    if counts.has_symbols(target):
        return "symbols", f"targets are made of {target.distinct_tokens} different symbols"
    return "translation", f"targets are text ({target.tokens_per_line:.1f} words a line)"


def infer_units(counts: Counts, task: str) -> tuple[str, str]:
    """The units of source and target: subwords for text, letters or whole symbols otherwise."""
    return _symbol_units(counts) if task == "symbols" else ("bpe", "bpe")


def _symbol_units(counts: Counts) -> tuple[str, str]:
    """Whether each side of a symbols task is read as whole symbols or letter by letter."""

    def units(side: Side) -> str:
        several = side.tokens_per_line >= max(1.2, side.characters_per_line / 20)
        return "word" if several and counts.has_symbols(side) else "char"

    # Features are written without spaces between them: as words, each set of them would be a symbol of its own.
    return "char" if counts.features else units(counts.source), units(counts.target)
