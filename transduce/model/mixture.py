"""The Transformer with a mixture of experts in place of every feed-forward network; its loss keeps the experts balanced."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transduce.config.models import MoeConfig
from transduce.model.cost import (
    OPERATIONS_PER_WEIGHT,
    feed_forward_weights,
    hidden_activations,
    transformer_activations,
    transformer_flops,
)
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


# --- what training costs -----------------------------------------------------------------------------------------


def moe_flops(config: MoeConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float) -> float:
    """As a Transformer, with the feed-forward networks of several experts, and gates and noise for each expert."""
    further = (config.experts_per_token - 1) * feed_forward_weights(config) + 2 * config.d_model * config.num_experts
    tokens = config.num_encoder_layers * source_tokens + config.num_decoder_layers * target_tokens
    transformer = transformer_flops(config, classes, source_tokens, target_tokens, mean_length)
    return transformer + OPERATIONS_PER_WEIGHT * tokens * further


def moe_activations(config: MoeConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """As a Transformer, with slots for the tokens of every expert, their inner layers and what they return."""
    slots = config.experts_per_token * config.expert_capacity
    returned = (2 * slots + config.experts_per_token) * config.d_model
    further = round((slots - 1) * hidden_activations(config) + returned + 8 * config.num_experts)
    positions = config.num_encoder_layers * source_positions + config.num_decoder_layers * target_positions
    return transformer_activations(config, source_positions, target_positions, masks) + positions * further
