"""Sub-layers by kernel: which layers and batches the kernels cover, and a module's parameters handed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import relu

from transduce.model import kernels

if TYPE_CHECKING:
    from transduce.model.attention import MultiHeadAttention
    from transduce.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
    from transduce.model.tokens import Keep


def covers(layer: EncoderLayer | DecoderLayer, x: Tensor, keeps: Sequence[Keep]) -> bool:
    """The paper's layer, of either norm, over pages; everything else is computed as written."""
    if not kernels.serve(x):
        return False
    attention, feed_forward = layer.attention, layer.feed_forward
    return (
        isinstance(layer.attention_residual.norm, nn.LayerNorm)
        and feed_forward.activation is relu
        and not (feed_forward.dropout.p or attention.dropout)
        and attention.tap is None
        and not attention.rotary
        and attention.d_k == attention.d_v == x.shape[-1] // attention.heads
        and x.shape[-1] % kernels.ALIGNED == 0
        and feed_forward.inner.out_features % kernels.ALIGNED == 0
        and attention.d_k in kernels.HEAD_WIDTHS
        and all(kernels.fits_a_page(keep.query, keep.key, attention.d_k) for keep in keeps)
    )


def attend_to_self(attention: MultiHeadAttention, residual: Residual, x: Tensor, keep: Keep) -> Tensor:
    stacked, heads = attention.stacked, attention.heads
    last, beside = last_of(attention.output, residual), around(residual)
    return kernels.self_attention(x, stacked.weight, stacked.bias, last, beside, keep.query, heads, keep.causal)


def attend_to_source(
    attention: MultiHeadAttention, residual: Residual, x: Tensor, memory: Tensor, keep: Keep
) -> Tensor:
    stacked, heads = attention.stacked, attention.heads
    last, beside = last_of(attention.output, residual), around(residual)
    return kernels.source_attention(x, memory, stacked.weight, stacked.bias, last, beside, keep.query, keep.key, heads)


def feed(feed_forward: FeedForward, residual: Residual, x: Tensor) -> Tensor:
    inner = feed_forward.inner
    return kernels.feed_forward(x, inner.weight, inner.bias, last_of(feed_forward.outer, residual), around(residual))


def last_of(product: nn.Linear, residual: Residual) -> kernels.Last:
    norm = _norm(residual)
    return kernels.Last(product.weight, product.bias, norm.weight, norm.bias)


def around(residual: Residual) -> kernels.Around:
    rate = residual.dropout.p if residual.training else 0.0
    return kernels.Around(residual.pre, rate, _norm(residual).eps)


def _norm(residual: Residual) -> nn.LayerNorm:
    assert isinstance(residual.norm, nn.LayerNorm), "what `covers` refuses"
    return residual.norm
