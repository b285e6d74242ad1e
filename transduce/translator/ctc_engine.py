"""The engine for speech with words: CTC prefix search with an n-gram model and a lexicon, then rescoring by the decoder.

The CTC search is fast and knows words. The decoder rescores its best texts, and the one with the highest sum wins:
`ctc_weight * CTC + (1 - ctc_weight) * decoder + lm_weight * n-gram model + word_bonus * words`. Knows ids, and no sound files.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.model import Tokens, collate
from transduce.model.speech import SpeechModel
from transduce.model.transformer import Memory
from transduce.search import Hypothesis
from transduce.search.ctc import CtcHypothesis, prefix_search
from transduce.text import EOS, UNKNOWN
from transduce.translator.engine import Ids, SearchBlock, Searched, SearchRequest, unwatched
from transduce.translator.torch_engine import TorchEngine
from transduce.translator.word_search import WordGuide, Words, WordWeights

# A text is as long as the frames allow, and its score has weights of its own, so neither the length limit nor the length penalty
# is used. `<unk>` is never written.
SUPPORTED = frozenset(
    {
        "beam",
        "n_best",
        "log_probs",
        "alpha",
        "length_penalty",
        "max_extra",
        "allow_unknown",
        "aligned",
        "replace_unknown",
    }
)
_ROWS = 64  # texts that the decoder scores at once


@dataclass(frozen=True)
class Candidate:
    """A text that the search found, with what each part of its score says."""

    tokens: list[int]
    ctc: float
    ngram: float
    words: int
    decoder: list[float]  # of each token and `</s>`; empty without rescoring

    def score(self, weights: WordWeights) -> float:
        heard = weights.ctc_weight * self.ctc + (1 - weights.ctc_weight) * sum(self.decoder)
        return heard + weights.lm_weight * self.ngram + weights.word_bonus * self.words


class CtcEngine:
    """A speech model with the words that it may write."""

    concurrent: ClassVar = False
    spares_cores: ClassVar = False

    def __init__(self, inner: TorchEngine, words: Words, weights: WordWeights) -> None:
        model = inner.model
        if not isinstance(model, SpeechModel) or model.ctc is None:
            raise SettingError(
                "an n-gram model needs a speech model with a CTC output: train it with model.ctc_weight above 0"
            )
        if len(inner.ensemble.models) > 1:
            raise SettingError("an n-gram model cannot be used with an ensemble: leave out one of them")
        self.inner, self.model, self.words, self.weights = inner, model, words, weights

    @property
    def longest(self) -> int:
        return self.inner.longest

    def stream(self, blocks: Iterable[SearchBlock], request: SearchRequest) -> Iterator[list[list[Hypothesis]]]:
        """For each block, the hypotheses for each of its sources, best first; `request.beam` of them are scored by the decoder."""
        for block in blocks:
            check_request(block, request)
            found = self.candidates(
                block.sources, request.beam, with_decoder=self.weights.ctc_weight < 1, searched=block.searched
            )
            yield [[_hypothesis(one, self.weights) for one in self.ranked(texts)[: request.n_best]] for texts in found]

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        return self.inner.score(sources, targets)

    def ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return sorted(candidates, key=lambda one: -one.score(self.weights))

    @torch.inference_mode()
    def candidates(
        self, sources: Sequence[Ids], most: int, with_decoder: bool = True, searched: Searched = unwatched
    ) -> list[list[Candidate]]:
        """The best texts of each source by CTC and the n-gram model, rescored by the decoder if `with_decoder`."""
        self.model.eval()
        found: list[list[Candidate]] = [[] for _ in sources]
        for numbers in self.inner.batches(sources, beam=1):
            memory = self._encoded([sources[number] for number in numbers])
            texts = self._searched(memory, most)
            decoder_scores = self._decoder_scores(memory, texts) if with_decoder else None
            for row, number in enumerate(numbers):
                each = decoder_scores[row] if decoder_scores else [[]] * len(texts[row])
                found[number] = [
                    _candidate(text, of_decoder) for text, of_decoder in zip(texts[row], each, strict=True)
                ]
            searched(len(numbers))
        return found

    def _encoded(self, sources: Sequence[Ids]) -> Memory:
        with self.inner.device.mixed_precision():
            return self.model.encode(collate(sources, self.inner.source_pad).to(self.inner.device.torch))

    def _searched(self, memory: Memory, most: int) -> list[list[CtcHypothesis]]:
        log_probs = self.model.ctc_log_probs(memory).cpu().numpy()
        frames = (memory.segment != 0).sum(1).tolist()
        guide = WordGuide(self.words, self.weights)
        beam = max(most, self.weights.prefixes)
        return [
            self._distinct(prefix_search(row[:end], guide, beam=beam, n_best=beam, never=(EOS, UNKNOWN)), most)
            for row, end in zip(log_probs, frames, strict=True)
        ]

    def _distinct(self, texts: list[CtcHypothesis], most: int) -> list[CtcHypothesis]:
        """The best segmentation of each text."""
        by_text: dict[str, CtcHypothesis] = {}
        for text in texts:
            spelt = "".join(
                f"{' ' * begins}{letters}" for begins, letters in (self.words.pieces[t] for t in text.tokens)
            )
            by_text.setdefault(spelt.strip(), text)
        return list(by_text.values())[:most]

    def _decoder_scores(self, memory: Memory, texts: list[list[CtcHypothesis]]) -> list[list[list[float]]]:
        """The decoder's log-probability of each token of each text of each row."""
        rows = [(row, [*text.tokens, EOS]) for row, found in enumerate(texts) for text in found]
        scores: list[list[list[float]]] = [[] for _ in texts]
        for begin in range(0, len(rows), _ROWS):
            part = rows[begin : begin + _ROWS]
            which = torch.tensor([row for row, _ in part], device=memory.segment.device)
            chosen = self._teacher_forced(Memory(memory.hidden[which], memory.segment[which]), [ids for _, ids in part])
            for (row, ids), of_tokens in zip(part, chosen.tolist(), strict=True):
                scores[row].append(of_tokens[: len(ids)])
        return scores

    def _teacher_forced(self, memory: Memory, texts: list[list[int]]) -> Tensor:
        """The decoder's log-probability of each token of these texts, each given the tokens before it."""
        pad, device = self.inner.target_pad, self.inner.device.torch
        inputs = Tokens.padded([[pad, *ids[:-1]] for ids in texts], pad).to(device)
        labels = Tokens.padded(texts, 0).ids.to(device)
        with self.inner.device.mixed_precision():
            logits = self.model.project(self.model.decode(inputs, memory))
        return logits.float().log_softmax(-1).gather(-1, labels[..., None])[..., 0].cpu()


def _candidate(text: CtcHypothesis, of_decoder: list[float]) -> Candidate:
    return Candidate(text.tokens, text.log_probability, text.state.ngram, text.state.whole, of_decoder)


def _hypothesis(one: Candidate, weights: WordWeights) -> Hypothesis:
    """The log-probability is the decoder's, or that of CTC where the decoder is not used."""
    return Hypothesis(one.tokens, one.score(weights), sum(one.decoder) if one.decoder else one.ctc, one.decoder)


def check_request(block: SearchBlock, request: SearchRequest) -> None:
    """Refuse what a search with words cannot do."""
    if request.sampling or request.constrained or any(map(len, block.prefixes)):
        raise SettingError("an n-gram model works with beam search alone: leave out sampling, prefixes and terms")
    if setting := request.refusal(SUPPORTED):
        raise SettingError(f"an n-gram model does not support {setting}: leave it out")
