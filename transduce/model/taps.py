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


@contextmanager
def watch(model: Transformer) -> Iterator[AttentionMaps]:
    """Open the taps for a while: what `encode` and `decode` attend to is added to the maps."""
    maps = AttentionMaps()
    tapped: list[tuple[MultiHeadAttention, list[Tensor]]] = [
        *((layer.attention, maps.encoder) for layer in model.encoder),
        *((layer.attention, maps.decoder) for layer in model.decoder),
        *((layer.source_attention, maps.source) for layer in model.decoder),
    ]
    for attention, seen in tapped:
        attention.tap = seen.append
    try:
        yield maps
    finally:
        for attention, _ in tapped:
            attention.tap = None
