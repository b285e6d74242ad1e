"""Whole sub-layers, including residual and norm, with explicit backward passes.

An explicit backward pass lets a matrix product add its result to a gradient that arrived earlier, and lets one kernel compute
what would otherwise be several passes over memory. The plain form of each sub-layer is in `layers.py`.

All positions form one axis here, [N, D]; only attention needs rows. Weights are laid out as in `torch.nn.Linear`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from transduce.model.kernels.attention import attend, attend_backward
from transduce.model.kernels.causal import Attended, attend_causally, attend_causally_backward
from transduce.model.kernels.feed_forward import cut_product, relu_product
from transduce.model.kernels.randomness import sample_seed
from transduce.model.kernels.residual import (
    Normed,
    add,
    add_and_norm,
    add_and_norm_backward,
    add_backward,
    norm,
    norm_backward,
)
from transduce.model.kernels.rotary import rotate_product


@dataclass(frozen=True)
class ResidualOptions:
    """The residual connection of a sub-layer: the norm before or after it, and the dropout of its output."""

    pre: bool
    rate: float
    eps: float


@dataclass(frozen=True)
class OutputParameters:
    """The last parameters of a sub-layer: its output projection and its norm."""

    weight: Tensor
    bias: Tensor
    gain: Tensor
    shift: Tensor

    @property
    def all(self) -> tuple[Tensor, ...]:
        return self.weight, self.bias, self.gain, self.shift


def feed_forward(
    x: Tensor, inner: Tensor, inner_bias: Tensor, output: OutputParameters, options: ResidualOptions
) -> Tensor:
    """LayerNorm(x + Dropout(max(0, x W1 + b1) W2 + b2)), or its pre-norm form."""
    return _FeedForward.apply(x, inner, inner_bias, *output.all, options)  # type: ignore[no-any-return]


def self_attention(
    x: Tensor,
    stacked: Tensor,
    bias: Tensor,
    output: OutputParameters,
    options: ResidualOptions,
    segment: Tensor,
    heads: int,
    causal: bool,
    rotary: Tensor | None = None,
    window: int = 0,
) -> Tensor:
    """Self-attention of `x`, with residual and norm as in `feed_forward`; `rotary` are the positions, if they are rotary."""
    return _SelfAttention.apply(  # type: ignore[no-any-return]
        x, stacked, bias, *output.all, options, segment, heads, causal, rotary, window
    )


def causal_attention(
    x: Tensor,
    stacked: Tensor,
    bias: Tensor,
    output: OutputParameters,
    options: ResidualOptions,
    heads: int,
    rotary: Tensor | None = None,
) -> Tensor:
    """`self_attention` that is causal, in rows of any width, each a single sequence."""
    return _CausalAttention.apply(  # type: ignore[no-any-return]
        x, stacked, bias, *output.all, options, heads, rotary
    )


def source_attention(
    x: Tensor, memory: Tensor, stacked: Tensor, bias: Tensor, output: OutputParameters, options: ResidualOptions,
    query_segment: Tensor, key_segment: Tensor, heads: int,
) -> Tensor:  # fmt: skip
    """Attention of `x` to the encoder's output, with residual and norm as in `feed_forward`."""
    return _SourceAttention.apply(  # type: ignore[no-any-return]
        x, memory, stacked, bias, *output.all, options, query_segment, key_segment, heads
    )


def add_bias_and_norm(
    x: Tensor, z: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The end of a sub-layer in inference: x + z + b, and its norm."""
    normed = add_and_norm(x, z, bias, gain, shift, 0.0, x, eps)
    return normed.total, normed.out


class _FeedForward(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, inner_bias: Tensor, weight: Tensor, bias: Tensor, gain: Tensor,
        shift: Tensor, options: ResidualOptions,
    ) -> Tensor:  # fmt: skip
        y = _begin(ctx, x.flatten(0, -2), gain, shift, options)
        hidden = relu_product(y, inner, inner_bias)
        ctx.save_for_backward(y, inner, hidden, weight)
        return _finish(ctx, x, hidden @ weight.t(), OutputParameters(weight, bias, gain, shift), options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, inner, hidden, weight = ctx.saved_tensors
        dx, dz, d_bias = _finish_backward(ctx, gradient)
        through, d_inner_bias = cut_product(dz, weight, hidden)
        dx = _begin_backward(ctx, dx, through, inner)
        d_inner, d_weight = through.t() @ y, dz.t() @ hidden
        return dx.view_as(gradient), d_inner, d_inner_bias, d_weight, d_bias, *ctx.of_norm, None


class _SelfAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stacked: Tensor, stacked_bias: Tensor, weight: Tensor, bias: Tensor, gain: Tensor,
        shift: Tensor, options: ResidualOptions, segment: Tensor, heads: int, causal: bool, rotary: Tensor | None,
        window: int,
    ) -> Tensor:  # fmt: skip
        y = _begin(ctx, x.flatten(0, -2), gain, shift, options)
        if rotary is None:
            product = (y @ stacked.t()).view(*x.shape[:-1], -1)
        else:  # the kernel would add the biases after the rotation, so they are added here
            product = _rotated(torch.addmm(stacked_bias, y, stacked.t()).view(*x.shape[:-1], -1), rotary, heads)
            stacked_bias = torch.zeros_like(stacked_bias)
        attended, levels = attend(product.chunk(3, -1), stacked_bias.chunk(3), segment, segment, heads, causal, window)
        attended = attended.flatten(0, -2)
        ctx.save_for_backward(y, stacked, stacked_bias, product, attended, levels, weight, segment, rotary)
        ctx.heads, ctx.causal, ctx.window = heads, causal, window
        return _finish(ctx, x, attended @ weight.t(), OutputParameters(weight, bias, gain, shift), options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, stacked, stacked_bias, product, attended, levels, weight, segment, rotary = ctx.saved_tensors
        dx, dz, d_bias = _finish_backward(ctx, gradient)
        d_weight = dz.t() @ attended
        of_attended, of_product = (dz @ weight).view(*gradient.shape[:-1], -1), torch.empty_like(product)
        d_stacked_bias = attend_backward(
            of_attended, levels, product.chunk(3, -1), stacked_bias.chunk(3), of_product.chunk(3, -1),
            segment, segment, ctx.heads, ctx.causal, ctx.window,
        )  # fmt: skip
        through = of_product.flatten(0, -2)
        if rotary is not None:
            _rotated(of_product, rotary, ctx.heads, back=True)
            d_stacked_bias = _sum_over_positions(through)
        d_stacked = through.t() @ y
        dx = _begin_backward(ctx, dx, through, stacked)
        return dx.view_as(gradient), d_stacked, d_stacked_bias, d_weight, d_bias, *ctx.of_norm, *(6 * [None])


class _CausalAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stacked: Tensor, stacked_bias: Tensor, weight: Tensor, bias: Tensor, gain: Tensor,
        shift: Tensor, options: ResidualOptions, heads: int, rotary: Tensor | None,
    ) -> Tensor:  # fmt: skip
        y = _begin(ctx, x.flatten(0, -2), gain, shift, options)
        product = torch.addmm(stacked_bias, y, stacked.t()).view(*x.shape[:-1], -1)
        product = _rotated(product, rotary, heads)
        attended = attend_causally(product, heads)
        ctx.save_for_backward(y, stacked, product, attended.heads, weight, rotary)
        ctx.heads, ctx.rest = heads, attended.rest
        z = attended.joined.flatten(0, -2) @ weight.t()
        return _finish(ctx, x, z, OutputParameters(weight, bias, gain, shift), options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, stacked, product, heads, weight, rotary = ctx.saved_tensors
        attended = Attended(heads, ctx.rest)
        dx, dz, d_bias = _finish_backward(ctx, gradient)
        d_weight = dz.t() @ attended.joined.flatten(0, -2)
        of_attended = (dz @ weight).view(*gradient.shape[:-1], -1)
        of_product = attend_causally_backward(of_attended, product, attended, ctx.heads)
        through = _rotated(of_product, rotary, ctx.heads, back=True).flatten(0, -2)
        d_stacked = through.t() @ y
        dx = _begin_backward(ctx, dx, through, stacked)
        d_stacked_bias = _sum_over_positions(through)
        return dx.view_as(gradient), d_stacked, d_stacked_bias, d_weight, d_bias, *ctx.of_norm, *(3 * [None])


class _SourceAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor, stacked: Tensor, stacked_bias: Tensor, weight: Tensor, bias: Tensor,
        gain: Tensor, shift: Tensor, options: ResidualOptions, query_segment: Tensor, key_segment: Tensor, heads: int,
    ) -> Tensor:  # fmt: skip
        width = x.shape[-1]
        y, source = _begin(ctx, x.flatten(0, -2), gain, shift, options), memory.flatten(0, -2)
        queries = (y @ stacked[:width].t()).view(*x.shape[:-1], -1)
        product = (source @ stacked[width:].t()).view(*memory.shape[:-1], -1)
        inputs = queries, *product.chunk(2, -1)
        attended, levels = attend(inputs, stacked_bias.chunk(3), query_segment, key_segment, heads, causal=False)
        attended = attended.flatten(0, -2)
        ctx.save_for_backward(
            y, source, stacked, stacked_bias, queries, product, attended, levels, weight, query_segment, key_segment
        )
        ctx.heads, ctx.memory_shape = heads, memory.shape
        return _finish(ctx, x, attended @ weight.t(), OutputParameters(weight, bias, gain, shift), options)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, source, stacked, stacked_bias, queries, product, attended, levels, weight, query_segment, key_segment = (
            ctx.saved_tensors
        )
        dx, dz, d_bias = _finish_backward(ctx, gradient)
        d_weight = dz.t() @ attended
        of_queries, of_product = torch.empty_like(queries), torch.empty_like(product)
        d_stacked_bias = attend_backward(
            (dz @ weight).view(*gradient.shape[:-1], -1), levels, (queries, *product.chunk(2, -1)),
            stacked_bias.chunk(3), (of_queries, *of_product.chunk(2, -1)), query_segment, key_segment, ctx.heads, causal=False,
        )  # fmt: skip
        width, through, of_source = gradient.shape[-1], of_queries.flatten(0, -2), of_product.flatten(0, -2)
        d_stacked = torch.empty_like(stacked)
        torch.mm(through.t(), y, out=d_stacked[:width])
        torch.mm(of_source.t(), source, out=d_stacked[width:])
        d_memory = (of_source @ stacked[width:]).view(ctx.memory_shape)
        dx = _begin_backward(ctx, dx, through, stacked[:width])
        return dx.view_as(gradient), d_memory, d_stacked, d_stacked_bias, d_weight, d_bias, *ctx.of_norm, *(4 * [None])


def _rotated(product: Tensor, rotary: Tensor | None, heads: int, back: bool = False) -> Tensor:
    """The product itself, with queries and keys rotated in place where positions are rotary."""
    if rotary is not None:
        rotate_product(product, rotary, heads, back)
    return product


def _sum_over_positions(gradients: Tensor) -> Tensor:
    return gradients.sum(0, dtype=torch.float32).to(gradients.dtype)


# The beginning and end that all sub-layers share. `ctx` holds what the backward pass needs and, after it, the norm's gradients.


def _begin(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, options: ResidualOptions) -> Tensor:
    ctx.options, ctx.gain = options, gain
    if not options.pre:
        return x
    ctx.normed = norm(x, gain, shift, options.eps)
    return ctx.normed.out  # type: ignore[no-any-return]


def _finish(ctx: Any, x: Tensor, z: Tensor, output: OutputParameters, options: ResidualOptions) -> Tensor:
    ctx.seed, ctx.bias = sample_seed(x) if options.rate else x, output.bias
    if options.pre:
        return add(x, z, output.bias, options.rate, ctx.seed)
    normed = add_and_norm(x, z, output.bias, output.gain, output.shift, options.rate, ctx.seed, options.eps)
    ctx.normed = Normed(normed.total, torch.empty(0), normed.mean, normed.scale)  # the next sub-layer saves the result
    return normed.out


def _finish_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x (only the part that bypasses the sub-layer), of z and of the last bias."""
    gradient = gradient.contiguous().flatten(0, -2)
    if ctx.options.pre:
        dz, d_bias = add_backward(gradient, ctx.bias, ctx.options.rate, ctx.seed)
        return gradient, dz, d_bias
    dx, dz, sums = add_and_norm_backward(gradient, ctx.normed, ctx.gain, ctx.options.rate, ctx.seed)
    ctx.of_norm = sums[0], sums[1]
    return dx, dz, sums[2]


def _begin_backward(ctx: Any, dx: Tensor, through: Tensor, weight: Tensor) -> Tensor:
    """The whole gradient of x: adds the part that went through the sub-layer, up to its first product."""
    if not ctx.options.pre:
        return dx.addmm_(through, weight)  # in place: the norm's backward pass allocated it
    dx, sums = norm_backward(through @ weight, dx, ctx.normed, ctx.gain)
    ctx.of_norm = sums[0], sums[1]
    return dx
