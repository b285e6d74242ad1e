"""Word alignments: from the source token that each output token attends to most, to pairs of words.

Knows pieces and words, but no model: an engine provides the alignment of tokens.
"""

from collections.abc import Iterator, Sequence

from transduce.text import WORD_START

UNKNOWN = "<unk>"  # sentencepiece's name for an unknown token, which counts as a word

Pairs = list[tuple[int, int]]  # (source word, output word), counted from 0


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """For each piece, the index of its word."""
    return list(_word_numbers(pieces))


def _word_numbers(pieces: Sequence[str]) -> Iterator[int]:
    number = -1
    for piece in pieces:
        number += piece.startswith(WORD_START) or piece == UNKNOWN or number < 0
        yield number


def word_pairs(source: Sequence[str], target: Sequence[str], alignment: Sequence[int]) -> Pairs:
    """Aligned words, given the pieces of both sides and the source piece of each target piece."""
    from_words, to_words = word_numbers(source), word_numbers(target)
    return sorted({(from_words[at], word) for at, word in zip(alignment, to_words, strict=True)})


def pharaoh(pairs: Pairs) -> str:
    """The alignment in the Pharaoh format: `0-0 1-2 2-1`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def with_source_words(text: str, mark: str, words: Sequence[str]) -> str:
    """The text with the marks of unknown tokens replaced by these words, in order."""
    parts = text.split(mark)
    if len(parts) != len(words) + 1:  # the output contains the mark as text too, so they cannot be told apart
        return text
    spaced = [part for pair in zip(parts, [*words, ""], strict=True) for part in pair]
    return " ".join(" ".join(spaced).split())
