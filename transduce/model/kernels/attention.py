"""Attention within a page: a program holds a whole row of one head, so that softmax needs one look at it.

Queries, keys and values are read where the stacked product left them and their gradients are written where its backward
pass wants them: no transposes, no copies. Who may see whom comes from segments, so no mask is made either. The biases
of the products are added on the way in, and their gradients are summed on the way out.

Axes: R rows, Q places that ask, K places that are asked, H heads, E width of a head.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

WIDEST = 128  # places of a row that fit a program
WARPS = 8


def fits_a_page(asking: Tensor, asked: Tensor, head: int) -> bool:
    """Whether rows of this many places and heads of this width are for a program to hold."""
    return max(asking.shape[1], asked.shape[1]) <= WIDEST and head in (16, 32, 64, 128)


def attend_to_self(product: Tensor, bias: Tensor, segment: Tensor, heads: int, causal: bool) -> Tensor:
    """All heads of softmax(Q K^T / sqrt(E)) V side by side; `product` holds Q, K and V side by side, without bias."""
    return _SelfAttention.apply(product, bias, segment, heads, causal)  # type: ignore[no-any-return]


def attend_to_memory(
    queries: Tensor, query_bias: Tensor, product: Tensor, bias: Tensor, asking: Tensor, asked: Tensor, heads: int
) -> Tensor:
    """The same with queries of the decoder; `product` holds K and V of the memory side by side."""
    return _MemoryAttention.apply(queries, query_bias, product, bias, asking, asked, heads)  # type: ignore[no-any-return]


class _SelfAttention(Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, bias: Tensor, segment: Tensor, heads: int, causal: bool) -> Tensor:
        queries, keys, values = product.chunk(3, dim=-1)
        out = _run_forward(queries, keys, values, bias.chunk(3), segment, segment, heads, causal)
        ctx.save_for_backward(product, bias, segment)
        ctx.heads, ctx.causal = heads, causal
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        product, bias, segment = ctx.saved_tensors
        d_product = torch.empty_like(product)
        d_bias = _run_backward(
            gradient.contiguous(), product.chunk(3, dim=-1), bias.chunk(3), d_product.chunk(3, dim=-1),
            segment, segment, ctx.heads, ctx.causal,
        )  # fmt: skip
        return d_product, d_bias.to(bias.dtype), None, None, None


class _MemoryAttention(Function):
    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, query_bias: Tensor, product: Tensor, bias: Tensor, asking: Tensor, asked: Tensor,
        heads: int,
    ) -> Tensor:  # fmt: skip
        keys, values = product.chunk(2, dim=-1)
        biases = (query_bias, *bias.chunk(2))
        out = _run_forward(queries, keys, values, biases, asking, asked, heads, causal=False)
        ctx.save_for_backward(queries, query_bias, product, bias, asking, asked)
        ctx.heads = heads
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        queries, query_bias, product, bias, asking, asked = ctx.saved_tensors
        d_queries, d_product = torch.empty_like(queries), torch.empty_like(product)
        d_bias = _run_backward(
            gradient.contiguous(), (queries, *product.chunk(2, dim=-1)), (query_bias, *bias.chunk(2)),
            (d_queries, *d_product.chunk(2, dim=-1)), asking, asked, ctx.heads, causal=False,
        ).to(bias.dtype)  # fmt: skip
        width = query_bias.numel()
        return d_queries, d_bias[:width], d_product, d_bias[width:], None, None, None


def _run_forward(
    queries: Tensor, keys: Tensor, values: Tensor, biases: tuple[Tensor, ...], asking: Tensor, asked: Tensor,
    heads: int, causal: bool,
) -> Tensor:  # fmt: skip
    out = torch.empty_like(queries, memory_format=torch.contiguous_format)
    shape = _shape(queries, keys, heads)
    _forward[(queries.shape[0], heads)](
        queries, keys, values, *biases, asking, asked, out,
        queries.stride(1), keys.stride(1), out.stride(1), shape["E"] ** -0.5, CAUSAL=causal, num_warps=WARPS, **shape,
    )  # fmt: skip
    return out


def _run_backward(
    gradient: Tensor, inputs: tuple[Tensor, ...], biases: tuple[Tensor, ...], outputs: tuple[Tensor, ...],
    asking: Tensor, asked: Tensor, heads: int, causal: bool,
) -> Tensor:  # fmt: skip
    rows, width = gradient.shape[0], gradient.shape[2]
    sums = torch.empty(rows, 3, width, dtype=torch.float32, device=gradient.device)
    shape = _shape(inputs[0], inputs[1], heads)
    _backward[(rows, heads)](
        gradient, *inputs, *biases, asking, asked, *outputs, sums,
        gradient.stride(1), inputs[0].stride(1), inputs[1].stride(1), shape["E"] ** -0.5,
        CAUSAL=causal, num_warps=WARPS, **shape,
    )  # fmt: skip
    return sums.sum(0).flatten()


def _shape(queries: Tensor, keys: Tensor, heads: int) -> dict[str, int]:
    asking, asked = queries.shape[1], keys.shape[1]
    return {
        "Q": asking,
        "K": asked,
        "E": queries.shape[2] // heads,
        "H": heads,
        "BLOCK_Q": max(16, triton.next_power_of_2(asking)),
        "BLOCK_K": max(16, triton.next_power_of_2(asked)),
    }


@triton.jit
def _tile(pointer, bias, row, head, places, count, stride, E: tl.constexpr):
    """[places, E] of one row and head, with its bias, in the products' own precision."""
    features = head * E + tl.arange(0, E)
    at = pointer + (row.to(tl.int64) * count + places[:, None]) * stride + features[None, :]
    value = tl.load(at, (places < count)[:, None], 0.0)
    return (value.to(tl.float32) + tl.load(bias + features).to(tl.float32)[None, :]).to(value.dtype)


@triton.jit
def _weights(queries, keys, asking, asked, row, scale, q_places, k_places, Q, K, CAUSAL: tl.constexpr):
    """softmax(Q K^T / sqrt(E)) where a place may see another; a padding query sees everything."""
    q_segment = tl.load(asking + row.to(tl.int64) * Q + q_places, q_places < Q, 0)[:, None]
    k_segment = tl.load(asked + row.to(tl.int64) * K + k_places, k_places < K, 0)[None, :]
    keep = (q_segment == k_segment) | (q_segment == 0)
    if CAUSAL:
        keep = keep & (q_places[:, None] >= k_places[None, :])
    keep = keep & (k_places < K)[None, :]
    scores = tl.where(keep, tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale, float("-inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _forward(
    queries, keys, values, q_bias, k_bias, v_bias, asking, asked, out, q_stride, k_stride, out_stride, scale,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_places, k_places = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    q = _tile(queries, q_bias, row, head, q_places, Q, q_stride, E)
    k = _tile(keys, k_bias, row, head, k_places, K, k_stride, E)
    v = _tile(values, v_bias, row, head, k_places, K, k_stride, E)
    weights = _weights(q, k, asking, asked, row, scale, q_places, k_places, Q, K, CAUSAL)
    result = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    features = head * E + tl.arange(0, E)
    at = out + (row.to(tl.int64) * Q + q_places[:, None]) * out_stride + features[None, :]
    tl.store(at, result.to(out.dtype.element_ty), (q_places < Q)[:, None])


@triton.jit
def _give(pointer, sums, value, row, head, places, count, stride, E: tl.constexpr):
    """Write a gradient and its sum over places, which is the bias's."""
    features = head * E + tl.arange(0, E)
    at = pointer + (row.to(tl.int64) * count + places[:, None]) * stride + features[None, :]
    tl.store(at, value.to(pointer.dtype.element_ty), (places < count)[:, None])
    tl.store(sums + features, tl.sum(value, 0))


@triton.jit
def _backward(
    gradient, queries, keys, values, q_bias, k_bias, v_bias, asking, asked, d_queries, d_keys, d_values, sums,
    out_stride, q_stride, k_stride, scale,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_places, k_places = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    q = _tile(queries, q_bias, row, head, q_places, Q, q_stride, E)
    k = _tile(keys, k_bias, row, head, k_places, K, k_stride, E)
    v = _tile(values, v_bias, row, head, k_places, K, k_stride, E)
    features = head * E + tl.arange(0, E)
    at = gradient + (row.to(tl.int64) * Q + q_places[:, None]) * out_stride + features[None, :]
    of_out = tl.load(at, (q_places < Q)[:, None], 0.0)
    weights = _weights(q, k, asking, asked, row, scale, q_places, k_places, Q, K, CAUSAL)
    of_weights = tl.dot(of_out, tl.trans(v), input_precision="ieee")
    of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale).to(q.dtype)
    out = sums + row * 3 * H * E
    of_values = tl.dot(tl.trans(weights.to(v.dtype)), of_out, input_precision="ieee")
    _give(d_values, out + 2 * H * E, of_values, row, head, k_places, K, k_stride, E)
    of_keys = tl.dot(tl.trans(of_scores), q, input_precision="ieee")
    _give(d_keys, out + H * E, of_keys, row, head, k_places, K, k_stride, E)
    of_queries = tl.dot(of_scores, k, input_precision="ieee")
    _give(d_queries, out, of_queries, row, head, q_places, Q, q_stride, E)
