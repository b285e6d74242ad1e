"""Everything that the explorer shows of one sentence: the search, and one pass with all attention weights.

Uses a copy of the model that shares the translator's weights, so that it does not disturb translations.
Knows ids and vectors; the views decide what is shown.

Axes: Q target positions, V target classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.model import AttentionMaps, Head, Tokens, watch, without_heads
from transduce.search import Hypothesis
from transduce.search.beam_state import Observer
from transduce.text import EOS
from transduce.translator import SearchRequest, Translator
from transduce.translator.engine import Ids, SearchBlock
from transduce.translator.torch_engine import TorchEngine


@dataclass(frozen=True)
class Pair:
    """The ids of a source and a target sentence; both end in `</s>`."""

    source: Ids
    target: Ids


@dataclass(frozen=True)
class Seen:
    """The result of a forward pass over a sentence pair."""

    maps: AttentionMaps  # each [1, heads, queries, keys]
    log_probs: Tensor  # [Q, V], of every token at each target position


class Inside:
    """A copy of the translator's model, with some heads switched off if requested."""

    def __init__(self, translator: Translator, off: Sequence[Head] = ()) -> None:
        both = translator.vocabularies
        self.start = both.target.pad
        self.model = without_heads(translator.model, off).eval()
        self.engine = TorchEngine(self.model, translator.device, both.source.pad, both.target.pad, EOS)

    def search(self, source: Ids, request: SearchRequest) -> list[Hypothesis]:
        return next(self.engine.stream([SearchBlock([source], [()])], request))[0]

    def search_watched(self, source: Ids, request: SearchRequest, observer: Observer) -> list[Hypothesis]:
        return self.engine.search_watched(source, request, observer)

    def decoder_input(self, target: Ids) -> list[int]:
        """The decoder's input for a target: the start token, then every target token except the last."""
        return [self.start, *target[:-1]]

    def see(self, pair: Pair) -> Seen:
        """One forward pass over all positions of the pair, watched; a model without attention is refused."""
        with watch(self.model) as maps:
            return Seen(maps, self.log_probs(pair))

    @torch.inference_mode()
    def log_probs(self, pair: Pair) -> Tensor:
        """Log-probabilities of every token at each target position, [Q, V]."""
        memory = self.model.encode(self.tokens(pair.source))
        hidden = self.model.decode(self.tokens(self.decoder_input(pair.target)), memory)
        return self.model.project(hidden)[0].float().log_softmax(-1)

    def tokens(self, ids: Ids) -> Tokens:
        """A batch of one sentence; it has no padding, so any padding id will do."""
        return Tokens.padded([ids], self.start).to(self.engine.device.torch)
