"""Looking inside: the attention weights of every layer and head, without changing what is computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from transduce.model.attention import MultiHeadAttention
from transduce.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """Weights [R, H, Q, K] per layer, for each of the paper's three uses of attention."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    source: list[Tensor] = field(default_factory=list)


def attentions(model: Transformer) -> dict[str, list[MultiHeadAttention]]:
    """The layers' attentions in each of their uses."""
    return {
        "encoder": [layer.attention for layer in model.encoder],
        "decoder": [layer.attention for layer in model.decoder],
        "source": [layer.source_attention for layer in model.decoder],
    }


@contextmanager
def watch(model: Transformer) -> Iterator[AttentionMaps]:
    """Open the taps for a while: what `encode` and `decode` attend to is added to the maps."""
    maps = AttentionMaps()
    tapped = [(attention, part) for part, layers in attentions(model).items() for attention in layers]
    for attention, part in tapped:
        attention.tap = getattr(maps, part).append
    try:
        yield maps
    finally:
        for attention, _ in tapped:
            attention.tap = None
