"""From hypotheses to translations: the texts of outputs, their word alignments, and counts of what was cut or unknown.

Sees what a search found for a block of lines; how it was found, and where the lines come from, is the translator's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from transduce.data.feature_symbols import FeatureEncoder
from transduce.search import Hypothesis
from transduce.text import EOS, UNKNOWN, Decoded, Vocabularies
from transduce.translator.alignment import with_source_words, word_numbers, word_pairs
from transduce.translator.engine import SearchRequest
from transduce.translator.engines import Engines
from transduce.translator.inputs import LineBlock, cut
from transduce.translator.outputs import Output, Translation

Found = list[list[Hypothesis]]  # for each searched line of a block, best first


@dataclass(frozen=True)
class TranslationBuilder:
    """Builds the translations of a block of lines."""

    vocabularies: Vocabularies
    sources: FeatureEncoder
    engines: Engines  # its PyTorch engine aligns tokens
    longest_source: int  # tokens; the rest of a line was not translated
    sources_are_text: bool  # recordings have no tokens, so none is unknown

    def best_texts(self, block: LineBlock, found: Found) -> list[str]:
        """The text of the best output of each line; empty for an empty line."""
        texts = [""] * len(block.lines)
        best = [(number, those[0].tokens) for number, those in zip(block.searched, found, strict=True) if those]
        decoded = self.vocabularies.target.decode([tokens for _, tokens in best])
        for (number, _), text in zip(best, decoded, strict=True):
            texts[number] = block.lines[number].restored(text).text
        return texts

    def translations(self, block: LineBlock, found: Found, request: SearchRequest) -> Iterator[Translation]:
        """The translation of each line, with all of its outputs."""
        decoded = self.vocabularies.target.decode_counted([one.tokens for those in found for one in those])
        outputs = self._outputs(block, found, decoded, request)
        counts = [0] * len(block.lines)  # the number of outputs of each line
        for number, those in zip(block.searched, found, strict=True):
            counts[number] = len(those)
        for line, ids, count in zip(block.lines, block.ids, counts, strict=True):
            these = list(islice(outputs, count))
            yield Translation(
                source=line.source,
                outputs=[],
                source_tokens=len(ids),
                cut=max(0, len(ids) - self.longest_source),
                unknown=self.unknown(line.text, ids),
                unseen_features=self.sources.unseen(line.text),
            ).of_outputs(these)

    def unknown(self, text: str, ids: list[int]) -> int:
        """How many characters of a source are not in the vocabulary, or symbols: one `<unk>` is a symbol or several characters."""
        count = ids.count(UNKNOWN) if self.sources_are_text else 0
        if not count or self.vocabularies.source.has_only_symbols:
            return count
        # An unseen feature is one symbol, whatever its letters.
        unseen = self.sources.unseen(text)
        spelt = self.sources.word(text) if unseen else text
        return len(unseen) + sum(map(len, self.vocabularies.source.unknown_texts(spelt)))

    def _outputs(self, block: LineBlock, found: Found, decoded: Decoded, request: SearchRequest) -> Iterator[Output]:
        """The outputs of all lines, one for each hypothesis."""
        pairs = [(n, one) for n, those in zip(block.searched, found, strict=True) for one in those]
        limits = [limit for limit, those in zip(block.limits, found, strict=True) for _ in those]
        needs_alignment = request.aligned or request.replace_unknown
        alignments = self._token_alignments(block, pairs) if needs_alignment else [[]] * len(pairs)
        about = zip(pairs, limits, decoded.texts, decoded.newlines, alignments, strict=True)
        for (number, one), limit, text, newlines, alignment in about:
            texts_only = request.log_probs == "none" and not alignment
            pieces = [] if texts_only else self.vocabularies.target.pieces(one.tokens)
            line = block.lines[number]
            lost = line.restored(text).lost if line.values else 0
            words = word_pairs(self.vocabularies.source.written(line.text), pieces, alignment) if alignment else []
            if request.replace_unknown and UNKNOWN in one.tokens:
                text = self._without_unknown(text, line.text, one, alignment)
            yield Output(
                text=line.restored(text).text if line.values else text,
                tokens=pieces,
                score=one.score,
                log_probability=one.log_probability,
                token_log_probabilities=one.token_log_probabilities,
                alignment=line.aligned(words, text) if request.aligned else [],
                length=len(one.tokens) + 1,
                at_limit=len(one.tokens) + 1 >= limit,
                newlines=newlines,
                lost=lost,
            )

    def _token_alignments(self, block: LineBlock, pairs: list[tuple[int, Hypothesis]]) -> list[list[int]]:
        """The source token that each token of each output attends to most."""
        sources = [cut(block.ids[number], self.longest_source) for number, _ in pairs]
        return self.engines.torch.align(sources, [[*one.tokens, EOS] for _, one in pairs])

    def _without_unknown(self, text: str, source: str, one: Hypothesis, alignment: list[int]) -> str:
        """The text with each `<unk>` replaced by the source word that it is aligned with."""
        words = source.split()
        word_of_piece = word_numbers(self.vocabularies.source.written(source))
        asked = [word_of_piece[at] for at, token in zip(alignment, one.tokens, strict=True) if token == UNKNOWN]
        mark = self.vocabularies.target.decode([[UNKNOWN]])[0].strip()
        return with_source_words(text, mark, [words[min(at, len(words) - 1)] for at in asked])
