"""Recording the attention weights of every layer and head, without changing what is computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from transduce.model.attention import MultiHeadAttention
from transduce.model.model import Model
from transduce.model.transformer import as_transformer


@dataclass(frozen=True)
class AttentionMaps:
    """Weights [R, H, Q, K] per layer, for each of the paper's three uses of attention."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)


def attentions(model: Model) -> dict[str, list[MultiHeadAttention]]:
    """The attention modules of all layers, by use."""
    transformer = as_transformer(model)
    return {
        "encoder": [layer.attention for layer in transformer.encoder],
        "decoder": [layer.attention for layer in transformer.decoder],
        "cross": [layer.source_attention for layer in transformer.decoder],
    }


@contextmanager
def watch(model: Model) -> Iterator[AttentionMaps]:
    """Record the attention weights of every `encode` and `decode` inside the context."""
    maps = AttentionMaps()
    tapped = [(attention, part) for part, layers in attentions(model).items() for attention in layers]
    for attention, part in tapped:
        attention.tap = getattr(maps, part).append
    try:
        yield maps
    finally:
        for attention, _ in tapped:
            attention.tap = None
