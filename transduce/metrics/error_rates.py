"""Error rates of symbols and transcripts: edits to the nearest accepted reference, counted for each output. Sees only strings.

Tokens are phonemes, characters or words. For pronunciations, the token error rate is called PER and the sequence error rate WER; for
transcripts, the error rate of words is called WER.
"""

import unicodedata
from collections.abc import Sequence
from typing import Literal

SymbolUnits = Literal["word", "char"]

ERROR_RATES_VERSION = 1  # increase when a definition below changes
ERROR_RATES = {  # option -> name in JSON
    "token-error-rate": "token error rate",
    "sequence-error-rate": "sequence error rate",
    "per": "PER",
    "wer": "WER",
    "exact-match": "exact match",
    "edit-distance": "mean Levenshtein distance",
}
PRINTED = {"exact-match": "accuracy (exact match)"}  # if the printed name is another one
TRANSCRIPT_RATES: dict[str, SymbolUnits] = {"word-error-rate": "word", "character-error-rate": "char"}
TRANSCRIPT_TITLES = {"word-error-rate": "WER", "character-error-rate": "CER"}
_INSIDE_WORDS = "'’-"  # don't, well-known
PHONEME_CHARACTERS = 4  # length of the longest phonemes in ARPAbet, IPA with diacritics, or X-SAMPA


def count_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> list[tuple[int, int]]:
    """For each line, the edits to the nearest accepted reference, and the length of that reference."""
    return [
        min((edit_distance(output, reference), len(reference)) for reference in (_symbols(t, units) for t in accepted))
        for output, accepted in zip((_symbols(text, units) for text in hypotheses), references, strict=True)
    ]


def count_transcript_errors(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], units: SymbolUnits
) -> list[tuple[int, int]]:
    """The same as `count_errors` on normalised texts; characters include the spaces between words."""
    accepted = [[normalised_transcript(text) for text in texts] for texts in references]
    return count_errors([normalised_transcript(text) for text in hypotheses], accepted, units)


def normalised_transcript(text: str) -> str:
    """The text that is scored: NFKC, lower case, without punctuation except inside words, single spaces."""
    text = unicodedata.normalize("NFKC", text).lower()
    kept = "".join(" " if unicodedata.category(c)[0] in "PS" and c not in _INSIDE_WORDS else c for c in text)
    words = (word.strip(_INSIDE_WORDS) for word in kept.split())
    return " ".join(word for word in words if word)


def error_rate_signature(references: Sequence[Sequence[str]], units: SymbolUnits) -> str:
    """The signature of the error rates."""
    counts = {len(accepted) for accepted in references}
    number = str(counts.pop()) if len(counts) == 1 else "var"
    return f"nrefs:{number}|case:mixed|units:{units}|closest:edits|version:transduce-{ERROR_RATES_VERSION}"


def transcript_signature(references: Sequence[Sequence[str]], units: SymbolUnits) -> str:
    """The signature of the error rates of transcripts, with their normaliser."""
    normaliser = "norm:nfkc+lower+no-punctuation"
    return error_rate_signature(references, units).replace("case:mixed", normaliser)


def are_phonemes(references: Sequence[Sequence[str]]) -> bool:
    """Whether at least 99% of the whitespace-separated tokens are as short as phonemes."""
    lengths = [len(token) for accepted in references for text in accepted for token in text.split()]
    return sum(length > PHONEME_CHARACTERS for length in lengths) <= len(lengths) / 100


def _symbols(text: str, units: SymbolUnits) -> list[str]:
    return text.split() if units == "word" else list(text)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein)."""
    if one == other:
        return 0
    above = list(range(len(other) + 1))
    for row, symbol in enumerate(one, start=1):
        left, diagonal = row, row - 1
        for column, against in enumerate(other, start=1):
            over = above[column]
            best = diagonal if symbol == against else 1 + min(diagonal, left, over)
            above[column - 1], diagonal, left = left, over, best
        above[-1] = left
    return above[-1]
