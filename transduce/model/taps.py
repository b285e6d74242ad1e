"""Recording the attention weights of every layer and head, without changing what is computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from transduce.model.model import Model


@dataclass(frozen=True)
class AttentionMaps:
    """Weights [R, H, Q, K] per layer, for each of the paper's three uses of attention."""

    encoder: list[Tensor] = field(default_factory=list)
    decoder: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)


@contextmanager
def watch(model: Model) -> Iterator[AttentionMaps]:
    """Record the attention weights of every `encode` and `decode` inside the context."""
    maps = AttentionMaps()
    tapped = [(attention, part) for part, layers in model.attentions().items() for attention in layers]
    for attention, part in tapped:
        attention.tap = getattr(maps, part).append
    try:
        yield maps
    finally:
        for attention, _ in tapped:
            attention.tap = None
