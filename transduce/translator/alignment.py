"""Which source word an output word comes from, read off attention; and what to do with it.

Knows pieces and words, no model: an engine says which source token each output token looks at most.
"""

from collections.abc import Iterator, Sequence

BLANK = "▁"  # how sentencepiece marks the beginning of a word
UNKNOWN = "<unk>"  # its name for a token it does not have: taken for a word of its own

Pairs = list[tuple[int, int]]  # (source word, output word), counted from 0


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The word each piece belongs to."""
    return list(_word_numbers(pieces))


def _word_numbers(pieces: Sequence[str]) -> Iterator[int]:
    number = -1
    for piece in pieces:
        number += piece.startswith(BLANK) or piece == UNKNOWN or number < 0
        yield number


def word_pairs(source: Sequence[str], target: Sequence[str], looks_at: Sequence[int]) -> Pairs:
    """Words that stand for each other, given the pieces of both sides and the source piece of each target piece."""
    from_words, to_words = word_numbers(source), word_numbers(target)
    return sorted({(from_words[at], word) for at, word in zip(looks_at, to_words, strict=True)})


def pharaoh(pairs: Pairs) -> str:
    """As aligners write it: `0-0 1-2 2-1`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def with_source_words(text: str, mark: str, words: Sequence[str]) -> str:
    """The text with these words where the marks of unknown tokens are, in their order."""
    parts = text.split(mark)
    if len(parts) != len(words) + 1:  # the mark itself was said too: nobody knows which is which
        return text
    spaced = [part for pair in zip(parts, [*words, ""], strict=True) for part in pair]
    return " ".join(" ".join(spaced).split())
