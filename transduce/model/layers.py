"""The layers of both stacks (section 3.1): attention and feed-forward sub-layers, each in a residual connection.

Axes: R rows, W or Q places, K places that are asked, D d_model, F d_ff.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, silu

from transduce.config import ModelConfig
from transduce.model import kernels
from transduce.model.attention import Cache, KeysValues, MultiHeadAttention
from transduce.model.dropout import Dropout
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu, "swish": silu}


def make_norm(config: ModelConfig) -> nn.Module:
    """Over the d_model features of each token by itself: never over the batch or the sentence.

    Differs from the paper: eps is 1e-5 (the paper names none, its code had 1e-6), as in torch.nn and what we export to.
    """
    return (nn.LayerNorm if config.norm_kind == "layer" else nn.RMSNorm)(config.d_model, eps=1e-5)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or the pre-norm x + Dropout(Sublayer(LayerNorm(x))).

    A sub-layer ends in a product, `last`; it is applied here, so that its bias can be added with all the rest.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(
        self, x: Float[Tensor, "R W D"], sublayer: Callable[[Tensor], Tensor], last: nn.Linear
    ) -> Float[Tensor, "R W D"]:
        inner = sublayer(self.norm(x) if self.pre else x)
        if kernels.serve(x) and isinstance(self.norm, nn.LayerNorm):
            return self._by_kernel(x, linear(inner, last.weight), last.bias, self.norm)
        total = x + self.dropout(last(inner))
        return total if self.pre else self.norm(total)

    def _by_kernel(self, x: Tensor, product: Tensor, bias: Tensor, norm: nn.LayerNorm) -> Tensor:
        rate = self.dropout.p if self.training else 0.0
        if self.pre:
            return kernels.add(x, product, bias, rate)
        return kernels.add_and_norm(x, product, bias, norm.weight, norm.bias, rate, norm.eps)


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 at every place (section 3.3), or another activation; the residual applies `outer`, W2.

    SwiGLU has a third matrix: swish(x W1) * (x W3), then W2.
    """

    def __init__(self, config: ModelConfig) -> None:
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

    def forward(self, x: Float[Tensor, "R W D"]) -> Float[Tensor, "R W F"]:
        if self.activation is relu and kernels.serve(x):
            return self.dropout(kernels.relu_product(x, self.inner.weight, self.inner.bias))
        inner = self.inner(x)
        if self.gated:
            gate, value = inner.chunk(2, dim=-1)
            inner = self.activation(gate) * value
        else:
            inner = self.activation(inner)
        return self.dropout(inner)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Float[Tensor, "R W D"], position: Int[Tensor, "R W"], keep: Keep) -> Float[Tensor, "R W D"]:
        x = self.attention_residual(x, lambda y: self.attention.to_self(y, position, keep), self.attention.output)
        return self.feed_forward_residual(x, self.feed_forward, self.feed_forward.outer)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.source_attention, self.source_attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(
        self,
        x: Float[Tensor, "R Q D"],
        position: Int[Tensor, "R Q"],
        keep: Keep | None,
        source: Float[Tensor, "R K D"] | KeysValues,
        source_keep: Keep,
        cache: Cache | None = None,
    ) -> Float[Tensor, "R Q D"]:
        x = self.attention_residual(
            x, lambda y: self.attention.to_self(y, position, keep, cache), self.attention.output
        )
        x = self.source_attention_residual(
            x, lambda y: self.source_attention.to_memory(y, source, source_keep), self.source_attention.output
        )
        return self.feed_forward_residual(x, self.feed_forward, self.feed_forward.outer)
