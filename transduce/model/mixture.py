"""The Transformer with a mixture of experts in place of every feed-forward network; its loss keeps the experts balanced."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transduce.config.models import MoeConfig
from transduce.model.experts import Experts
from transduce.model.losses import IGNORED, Loss
from transduce.model.shapes import Int
from transduce.model.tokens import Source, Tokens
from transduce.model.transformer import Transformer


class MixtureOfExperts(Transformer):
    """A Transformer that has many more weights than it uses for one token."""

    config: MoeConfig

    def __init__(self, config: MoeConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        for layer in (*self.encoder, *self.decoder):
            layer.feed_forward = Experts(config)

    def loss(self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float) -> Loss:
        return self._balanced(super().loss(source, target, labels, smoothing), labels)

    def r_drop_loss(
        self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float, weight: float
    ) -> Loss:
        return self._balanced(super().r_drop_loss(source, target, labels, smoothing, weight), labels)

    def _balanced(self, loss: Loss, labels: Tensor) -> Loss:
        """The loss with that of unequal experts, as much per token as the paper's weight says."""
        found = [layer.imbalance for layer in self.experts.values() if layer.imbalance is not None]
        for layer in self.experts.values():
            layer.imbalance = None
        if not found:
            return loss
        tokens = (labels != IGNORED).sum()
        return Loss(loss.minimised + self.config.expert_balance * tokens * torch.stack(found).sum(), loss.cross_entropy)

    @property
    def experts(self) -> dict[str, Experts]:
        """The layers of experts, by the layer that they are in."""
        named = [(name.removesuffix(".feed_forward"), module) for name, module in self.named_modules()]
        return {name: module for name, module in named if isinstance(module, Experts)}

    @contextmanager
    def counting(self) -> Iterator[dict[str, list[int]]]:
        """Count the tokens that each expert of each layer gets inside the context."""
        counts: dict[str, list[int]] = {}
        for layer in self.experts.values():
            layer.counts = torch.zeros(len(layer.inner), dtype=torch.long, device=layer.inner.device)
        try:
            yield counts
        finally:
            for name, layer in self.experts.items():
                assert layer.counts is not None
                counts[name], layer.counts = layer.counts.tolist(), None
