"""Lines in the form that a model was trained on: features as symbols, a language tag in front, placeholders masked.

Knows strings and settings, but no ids; `LearnedLine` keeps what is needed to translate back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product

from transduce.config import DataConfig
from transduce.errors import DataError
from transduce.placeholders import Masked, Masker, Restored, restored, widths
from transduce.translator.alignment import Pairs


@dataclass(frozen=True)
class LearnedLine:
    """A line to translate, as it was given and in the form that the model was trained on."""

    source: str  # with features as symbols
    text: str  # also with a language tag and masked placeholders
    has_new_tag: bool = False  # whether the tag was added to the line
    values: tuple[str, ...] = ()  # of its placeholders

    def restored(self, output: str) -> Restored:
        """The output with the placeholders of this line."""
        return restored(output, self.values)

    def aligned(self, pairs: Pairs, output: str) -> Pairs:
        """Pairs of words of the learned line and its output, as pairs of words of the line and its restored output."""
        if not self.has_new_tag and not self.values:
            return pairs
        first = int(self.has_new_tag)
        here = list(_spans(widths(self.text, self.values)[first:]))
        there = list(_spans(widths(output, self.values)))
        inside = [(s - first, t) for s, t in pairs if first <= s < first + len(here) and t < len(there)]
        return sorted({pair for s, t in inside for pair in product(here[s], there[t])})


def _spans(counts: Sequence[int]) -> Iterator[range]:
    """The numbers of the words that take the place of each word."""
    for count, end in zip(counts, accumulate(counts), strict=True):
        yield range(end - count, end)


@dataclass(frozen=True)
class LineForms:
    """How lines are brought into the form that a model was trained on."""

    data: DataConfig
    tags: tuple[str, ...]  # the language tags of the vocabulary
    tag: str = ""  # to put before each line

    def learned(self, lines: Sequence[str]) -> list[LearnedLine]:
        columns, masker = self.data.layout, Masker(self.data.placeholders)
        reads_features = columns is not None and bool(columns.features)
        sources = [columns.source_of_line(line) for line in lines] if columns and reads_features else lines
        if not self.tags and not masker.kinds:
            return [LearnedLine(source, source) for source in sources]
        return [self._tagged(source, masker.mask(source)) for source in sources]

    def learned_pairs(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[LearnedLine], list[str]]:
        """Given pairs as the model has learned such pairs: only placeholders that both sides contain are masked."""
        lines = self.learned(sources)
        if not self.data.placeholders:
            return lines, list(targets)
        masker = Masker(self.data.placeholders)
        shared = [masker.shared(line.source, target) for line, target in zip(lines, targets, strict=True)]
        both = zip(lines, targets, shared, strict=True)
        masked = [self._tagged(line.source, Masked(masker.with_values(line.source, of), of)) for line, _, of in both]
        return masked, [masker.with_values(target, of) for target, of in zip(targets, shared, strict=True)]

    def masked_like(self, lines: Sequence[LearnedLine], texts: Sequence[str]) -> list[str]:
        """Beginnings of the outputs of these lines, with the symbols of their placeholders; or none, if none are given."""
        mask = Masker(self.data.placeholders).with_values
        return [mask(text, line.values) for line, text in zip(lines, texts, strict=False)]

    def terms_masked_like(self, lines: Sequence[LearnedLine], terms: Sequence[Sequence[str]]) -> list[list[str]]:
        """The same for the phrases that the outputs of these lines must contain."""
        return [self.masked_like([line] * len(phrases), phrases) for line, phrases in zip(lines, terms, strict=False)]

    def _tagged(self, source: str, masked: Masked) -> LearnedLine:
        has_tag = source.startswith(self.tags) if self.tags else False
        is_new = bool(self.tag) and not has_tag and bool(source.strip())
        if self.data.tags and not (has_tag or is_new) and source.strip():
            raise DataError(
                f"'{source[:40]}': no target language: choose one of {', '.join(tag[2:-2] for tag in self.tags)} with --to "
                f"(to= in Python), or begin the line with its tag, such as {self.tags[0]}"
            )
        return LearnedLine(source, f"{self.tag} {masked.text}" if is_new else masked.text, is_new, masked.values)
