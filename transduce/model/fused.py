"""Dispatch to the GPU kernels: which layers and batches they support, and calling them with a module's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from transduce.config import DecoderConfig, LayersConfig, TransformerConfig
from transduce.config.models import PrefixConfig
from transduce.config.support import ANY, SIZES, Supports, Values
from transduce.model import kernels

if TYPE_CHECKING:
    from transduce.model.attention import MultiHeadAttention
    from transduce.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
    from transduce.model.tokens import Keep


# The paper's layer, post-norm or pre-norm, also with rotary positions or a window. Positions that are added to the embeddings, and whatever
# follows the last layer, are outside a layer, so all of their values are supported.
_LAYERS: dict[str, Values] = {
    **SIZES,
    "dropout": ANY,
    "norm": ("post", "pre"),
    "positions": ("sinusoidal", "marian", "learned", "none", "rotary"),
    "output_bias": ANY,
    "window": ANY,
}
_TIES = ("all", "target", "none")
SUPPORTS = Supports(TransformerConfig, {**_LAYERS, "tie": _TIES})
DECODER_SUPPORTS = Supports(DecoderConfig, {**_LAYERS, "family": ("decoder",), "context": ANY})
PREFIX_SUPPORTS = Supports(PrefixConfig, {**_LAYERS, "family": ("prefix",), "tie": _TIES})  # with a causal source only
_DECLARED = (SUPPORTS, DECODER_SUPPORTS, PREFIX_SUPPORTS)


def understands(config: LayersConfig) -> bool:
    """Whether the kernels support layers with these settings, including their matrix sizes."""
    aligned = config.d_model % kernels.ALIGNED == config.d_ff % kernels.ALIGNED == 0
    declared = any(not supports.refusal(config) for supports in _DECLARED)
    return declared and aligned and config.heads_fill_d_model and config.key_width in kernels.HEAD_WIDTHS


def covers(layer: EncoderLayer | DecoderLayer, x: Tensor, keeps: Sequence[Keep]) -> bool:
    """Whether the kernels compute this layer on these rows; if not, the plain PyTorch code does."""
    return (
        layer.kernels_understand
        and kernels.supports(x)
        and layer.attention.stacked.weight.dtype == x.dtype  # under autocast, weights have another precision
        and layer.attention.tap is None
        and all(keep.only_causal or _fits_a_page(layer.attention, keep) for keep in keeps)
    )


def _fits_a_page(attention: MultiHeadAttention, keep: Keep) -> bool:
    return kernels.fits_a_page(keep.query, keep.key, attention.d_k)


def self_attention(
    attention: MultiHeadAttention, residual: Residual, x: Tensor, position: Tensor, keep: Keep
) -> Tensor:
    stacked, heads, rotary = attention.stacked, attention.heads, position if attention.rotary else None
    output, options = output_parameters(attention.output, residual), residual_options(residual)
    if not _fits_a_page(attention, keep):
        return kernels.causal_attention(x, stacked.weight, stacked.bias, output, options, heads, rotary)
    return kernels.self_attention(
        x, stacked.weight, stacked.bias, output, options, keep.query, heads, keep.causal, rotary, keep.window
    )


def source_attention(
    attention: MultiHeadAttention, residual: Residual, x: Tensor, memory: Tensor, keep: Keep
) -> Tensor:
    stacked, heads = attention.stacked, attention.heads
    output, options = output_parameters(attention.output, residual), residual_options(residual)
    return kernels.source_attention(
        x, memory, stacked.weight, stacked.bias, output, options, keep.query, keep.key, heads
    )


def feed_forward(network: FeedForward, residual: Residual, x: Tensor) -> Tensor:
    inner = network.inner
    return kernels.feed_forward(
        x, inner.weight, inner.bias, output_parameters(network.outer, residual), residual_options(residual)
    )


def output_parameters(product: nn.Linear, residual: Residual) -> kernels.OutputParameters:
    norm = _norm(residual)
    return kernels.OutputParameters(product.weight, product.bias, norm.weight, norm.bias)


def residual_options(residual: Residual) -> kernels.ResidualOptions:
    rate = residual.dropout.p if residual.training else 0.0
    return kernels.ResidualOptions(residual.pre, rate, _norm(residual).eps)


def _norm(residual: Residual) -> nn.LayerNorm:
    assert isinstance(residual.norm, nn.LayerNorm), "`covers` refuses other norms"
    return residual.norm
