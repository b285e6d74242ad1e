"""The layers of both stacks (section 3.1): attention and feed-forward sub-layers, each in a residual connection.

Axes: R rows, W or Q positions, K key positions, D d_model.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from transduce.config import LayersConfig
from transduce.model import fused
from transduce.model.attention import Cache, KeysValues, MultiHeadAttention
from transduce.model.batch_norm import TokenBatchNorm
from transduce.model.dropout import Dropout
from transduce.model.model import Matrices
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu, "swish": silu}


def make_norm(config: LayersConfig) -> nn.Module:
    """A norm over the d_model features of each token separately; or, for comparison, over the tokens of a batch.

    Differs from the paper: eps is 1e-5, as in torch.nn and the runtimes we export to (the paper gives none; its code used 1e-6).
    """
    kinds: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "batch": TokenBatchNorm}
    return kinds[config.norm_kind](config.d_model, eps=1e-5)


def normalise(norm: nn.Module, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
    """Apply a norm; only BatchNorm needs to know which positions are padding."""
    return norm(x, segment != 0) if isinstance(norm, TokenBatchNorm) else norm(x)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or the pre-norm x + Dropout(Sublayer(LayerNorm(x)))."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(
        self, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "R W D"]:
        if self.pre:
            return x + self.dropout(sublayer(normalise(self.norm, x, segment)))
        return normalise(self.norm, x + self.dropout(sublayer(x)), segment)


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at every position (section 3.3), or another activation.

    SwiGLU has a third matrix: swish(x W1) * (x W3), then W2.
    """

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.gated = config.activation == "swiglu"
        self.activation = silu if self.gated else ACTIVATIONS[config.activation]
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if self.gated else 1))
        self.dropout = Dropout(config.activation_dropout)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        for weight in [*self.inner.weight.split(config.d_ff), self.outer.weight]:
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"] | None = None) -> Float[Tensor, "R W D"]:
        """`segment` is for experts, which take the place of this network and must not count padding."""
        return self.outer(self.dropout(self.hidden(x)))

    def hidden(self, x: Float[Tensor, "*positions D"]) -> Float[Tensor, "*positions F"]:
        """The d_ff features between the two products."""
        inner = self.inner(x)
        if not self.gated:
            return self.activation(inner)
        gate, value = inner.chunk(2, dim=-1)
        return self.activation(gate) * value


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: a layer of the encoder, or of a decoder that has no source to attend to."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)
        self.kernels_understand = fused.understands(config)

    def forward(
        self,
        x: Float[Tensor, "R W D"],
        position: Int[Tensor, "R W"],
        keep: Keep | None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "R W D"]:
        if keep is not None and cache is None and fused.covers(self, x, [keep]):
            x = fused.self_attention(self.attention, self.attention_residual, x, position, keep)
            return fused.feed_forward(self.feed_forward, self.feed_forward_residual, x)
        segment = torch.ones_like(position) if keep is None else keep.query
        x = self.attention_residual(x, segment, lambda y: self.attention.to_self(y, position, keep, cache))
        return self.feed_forward_residual(x, segment, lambda y: self.feed_forward(y, segment))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.source_attention, self.source_attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)
        self.kernels_understand = fused.understands(config)

    def forward(
        self,
        x: Float[Tensor, "R Q D"],
        position: Int[Tensor, "R Q"],
        keep: Keep | None,
        source: Float[Tensor, "R K D"] | KeysValues,
        source_keep: Keep,
        cache: Cache | None = None,
    ) -> Float[Tensor, "R Q D"]:
        """`source` is the encoder's output, or the keys and values computed from it earlier."""
        if keep is not None and isinstance(source, Tensor) and fused.covers(self, x, [keep, source_keep]):
            x = fused.self_attention(self.attention, self.attention_residual, x, position, keep)
            x = fused.source_attention(self.source_attention, self.source_attention_residual, x, source, source_keep)
            return fused.feed_forward(self.feed_forward, self.feed_forward_residual, x)
        keys_values = source if isinstance(source, KeysValues) else self.source_attention.keys_values(source)
        segment, to_memory = source_keep.query, self.source_attention.to_memory
        x = self.attention_residual(x, segment, lambda y: self.attention.to_self(y, position, keep, cache))
        x = self.source_attention_residual(x, segment, lambda y: to_memory(y, keys_values, source_keep))
        return self.feed_forward_residual(x, segment, lambda y: self.feed_forward(y, segment))


def layer_matrices(layers: Iterable[nn.Module]) -> Matrices:
    """The matrices of these layers. W^Q, W^K and W^V are stacked in one parameter, as are both halves of a gated feed-forward layer."""
    stacked: Matrices = {}
    inside: list[Tensor] = []
    for layer in layers:
        inside += [parameter for parameter in layer.parameters() if parameter.dim() == 2]
        for module in layer.modules():
            if isinstance(module, MultiHeadAttention):
                stacked[module.stacked.weight] = module.widths
            elif isinstance(module, FeedForward) and module.gated:
                stacked[module.inner.weight] = 2 * [module.outer.in_features]
    return {matrix: stacked.get(matrix, [matrix.shape[0]]) for matrix in inside}
