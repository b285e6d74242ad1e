"""Everything that the explorer shows of one sentence: the search, and one pass with all attention weights.

Looks at a model of its own that shares the translator's weights, so that looking disturbs nobody who translates.
Sees ids and vectors; what of them is shown, and how, is for the views.

Axes: Q target places, V target classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.model import AttentionMaps, Head, Tokens, watch, without_heads
from transduce.search import Hypothesis
from transduce.search.lattice import Observer
from transduce.text import EOS
from transduce.translator import SearchRequest, Translator
from transduce.translator.engine import Ids
from transduce.translator.torch_engine import TorchEngine


@dataclass(frozen=True)
class Pair:
    """A source and what is written for it, as ids; both end in `</s>`."""

    source: Ids
    written: Ids


@dataclass(frozen=True)
class Seen:
    """What one pass over a pair computes."""

    maps: AttentionMaps  # each [1, heads, places that ask, places that are asked]
    log_probs: Tensor  # [Q, V], of what could be written at each place


class Inside:
    """A model to look into, with some heads switched off if asked."""

    def __init__(self, translator: Translator, off: Sequence[Head] = ()) -> None:
        both = translator.vocabularies
        self.start = both.target.pad
        self.model = without_heads(translator.model, off).eval()
        self.engine = TorchEngine(self.model, translator.device, both.source.pad, both.target.pad, EOS)

    def search(self, source: Ids, request: SearchRequest) -> list[Hypothesis]:
        return self.engine.search([source], [()], request)[0]

    def search_watched(self, source: Ids, request: SearchRequest, observer: Observer) -> list[Hypothesis]:
        return self.engine.search_watched(source, request, observer)

    def read(self, written: Ids) -> list[int]:
        """What the decoder is given when it writes this: the start, then each token but the last."""
        return [self.start, *written[:-1]]

    @torch.inference_mode()
    def see(self, pair: Pair) -> Seen:
        """All places of the pair at once."""
        with watch(self.model) as maps:
            memory = self.model.encode(self.tokens(pair.source))
            hidden = self.model.decode(self.tokens(self.read(pair.written)), memory)
        return Seen(maps, self.model.project(hidden)[0].float().log_softmax(-1))

    def tokens(self, ids: Ids) -> Tokens:
        """One sentence alone: there is no padding, so it does not matter which."""
        return Tokens.padded([ids], self.start).to(self.engine.device.torch)
