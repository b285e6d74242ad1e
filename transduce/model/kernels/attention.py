"""Attention within a page: a program holds a whole row of one head, so that softmax needs one look at it.

Queries, keys and values are read where the stacked product left them and their gradients are written where its backward
pass wants them: no transposes, no copies. Who may see whom comes from segments, so no mask is made either. The biases
of the products are added on the way in, and their gradients are summed on the way out.

Axes: R rows, Q places that ask, K places that are asked, H heads, E width of a head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 128  # places of a row that fit a program
MOST_ROWS = 65_535  # of a grid in its second direction
LOWEST = tl.constexpr(-1e30)  # a score that counts for nothing
FORWARD_WARPS, FORWARD_PARTS = 4, 1  # parts of a row's queries: each a program forwards, a turn backwards
BACKWARD_WARPS, BACKWARD_PARTS = 4, 1


def fits_a_page(asking: Tensor, asked: Tensor) -> bool:
    """Whether rows of this many places are for a program to hold, and a grid has so many rows."""
    return max(asking.shape[1], asked.shape[1]) <= WIDEST and len(asking) <= MOST_ROWS


def attend(
    inputs: tuple[Tensor, ...], biases: tuple[Tensor, ...], asking: Tensor, asked: Tensor, heads: int, causal: bool
) -> Tensor:
    """All heads of softmax(Q K^T / sqrt(E)) V side by side. Each of Q, K, V [R, places, H E] may be part of a wider row."""
    queries, keys, values = inputs
    out = torch.empty_like(queries, memory_format=torch.contiguous_format)
    shape = _shape(queries, keys, heads, FORWARD_PARTS)
    _attend_forward[(heads, queries.shape[0], shape["PARTS"])](
        queries, keys, values, *biases, asking, asked, out,
        queries.stride(1), keys.stride(1), out.stride(1), shape["E"] ** -0.5,
        CAUSAL=causal, num_warps=FORWARD_WARPS, **shape,
    )  # fmt: skip
    return out


def attend_backward(
    gradient: Tensor, inputs: tuple[Tensor, ...], biases: tuple[Tensor, ...], outputs: tuple[Tensor, ...],
    asking: Tensor, asked: Tensor, heads: int, causal: bool,
) -> Tensor:  # fmt: skip
    """The gradients of Q, K, V, written into `outputs`, and [3 H E]: those of their biases."""
    rows, width = gradient.shape[0], gradient.shape[2]
    sums = torch.empty(rows, 3, width, dtype=torch.float32, device=gradient.device)
    shape = _shape(inputs[0], inputs[1], heads, BACKWARD_PARTS)
    _attend_backward[(heads, rows)](
        gradient, *inputs, *biases, asking, asked, *outputs, sums,
        gradient.stride(1), inputs[0].stride(1), inputs[1].stride(1), shape["E"] ** -0.5,
        CAUSAL=causal, num_warps=BACKWARD_WARPS, **shape,
    )  # fmt: skip
    return sums.sum(0).flatten().to(gradient.dtype)


def _shape(queries: Tensor, keys: Tensor, heads: int, parts: int) -> dict[str, int]:
    asking, asked = queries.shape[1], keys.shape[1]
    block = max(16, triton.next_power_of_2(asking) // parts)
    return {
        "Q": asking,
        "K": asked,
        "E": queries.shape[2] // heads,
        "H": heads,
        "BLOCK_Q": block,
        "BLOCK_K": max(16, triton.next_power_of_2(asked)),
        "PARTS": triton.cdiv(asking, block),
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
    """softmax(Q K^T / sqrt(E)) where a place may see another; nothing but zeros for padding that sees nothing."""
    q_segment = tl.load(asking + row.to(tl.int64) * Q + q_places, q_places < Q, -1)[:, None]
    k_segment = tl.load(asked + row.to(tl.int64) * K + k_places, k_places < K, -2)[None, :]
    keep = q_segment == k_segment
    if CAUSAL:
        keep = keep & (q_places[:, None] >= k_places[None, :])
    scores = tl.where(
        keep, tl.dot(queries, tl.trans(keys), input_precision="ieee") * (scale * 1.4426950408889634), LOWEST
    )
    powers = tl.where(keep, tl.exp2(scores - tl.max(scores, 1)[:, None]), 0.0)
    return powers * (1 / tl.maximum(tl.sum(powers, 1), 1e-30))[:, None]


@triton.jit
def _attend_forward(
    queries, keys, values, q_bias, k_bias, v_bias, asking, asked, out, q_stride, k_stride, out_stride, scale,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1)  # heads of a row lie side by side
    q_places, k_places = tl.program_id(2) * BLOCK_Q + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    q = _tile(queries, q_bias, row, head, q_places, Q, q_stride, E)
    k = _tile(keys, k_bias, row, head, k_places, K, k_stride, E)
    v = _tile(values, v_bias, row, head, k_places, K, k_stride, E)
    weights = _weights(q, k, asking, asked, row, scale, q_places, k_places, Q, K, CAUSAL)
    result = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    _put(out, result, row, head, q_places, Q, out_stride, E)


@triton.jit
def _put(pointer, value, row, head, places, count, stride, E: tl.constexpr):
    features = head * E + tl.arange(0, E)
    at = pointer + (row.to(tl.int64) * count + places[:, None]) * stride + features[None, :]
    tl.store(at, value.to(pointer.dtype.element_ty), (places < count)[:, None])


@triton.jit
def _attend_backward(
    gradient, queries, keys, values, q_bias, k_bias, v_bias, asking, asked, d_queries, d_keys, d_values, sums,
    out_stride, q_stride, k_stride, scale,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1)  # heads of a row lie side by side
    k_places, features = tl.arange(0, BLOCK_K), head * E + tl.arange(0, E)
    k = _tile(keys, k_bias, row, head, k_places, K, k_stride, E)
    v = _tile(values, v_bias, row, head, k_places, K, k_stride, E)
    of_keys, of_values = tl.zeros((BLOCK_K, E), tl.float32), tl.zeros((BLOCK_K, E), tl.float32)
    of_q_bias = tl.zeros((E,), tl.float32)
    for part in tl.static_range(PARTS):
        q_places = part * BLOCK_Q + tl.arange(0, BLOCK_Q)
        q = _tile(queries, q_bias, row, head, q_places, Q, q_stride, E)
        at = gradient + (row.to(tl.int64) * Q + q_places[:, None]) * out_stride + features[None, :]
        of_out = tl.load(at, (q_places < Q)[:, None], 0.0)
        weights = _weights(q, k, asking, asked, row, scale, q_places, k_places, Q, K, CAUSAL)
        of_weights = tl.dot(of_out, tl.trans(v), input_precision="ieee")
        of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale).to(q.dtype)
        of_values += tl.dot(tl.trans(weights.to(v.dtype)), of_out, input_precision="ieee")
        of_keys += tl.dot(tl.trans(of_scores), q, input_precision="ieee")
        of_queries = tl.dot(of_scores, k, input_precision="ieee")
        _put(d_queries, of_queries, row, head, q_places, Q, q_stride, E)
        of_q_bias += tl.sum(of_queries, 0)
    _put(d_keys, of_keys, row, head, k_places, K, k_stride, E)
    _put(d_values, of_values, row, head, k_places, K, k_stride, E)
    out = sums + row * 3 * H * E + features
    tl.store(out, of_q_bias)
    tl.store(out + H * E, tl.sum(of_keys, 0))
    tl.store(out + 2 * H * E, tl.sum(of_values, 0))
