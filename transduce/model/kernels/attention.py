"""Attention within a page: one program holds a whole row of one head, so softmax takes a single pass.

Queries, keys and values are read from the stacked product, and their gradients are written where its backward pass reads
them, without transposes or copies. The mask is computed from the segments and never stored. The biases of the products are
added here too, where they matter: the bias of the keys shifts all scores of a query alike, so softmax cancels it; the bias of
the values is added to the result, since attention weights sum to 1. The gradients of the biases are summed here as well.

Axes: R rows, Q query positions, K key positions, H heads, E width of a head.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.model.kernels.sums import sum_of_parts

WIDEST = 128  # positions of a row that fit into a program
MOST_ROWS = 65_535  # the limit of a grid's second dimension
LOWEST = tl.constexpr(-1e30)  # below any score
BITS = 1 / math.log(2)  # converts e^x to 2^(x BITS): the hardware computes powers of 2
NARROW = 64  # up to this width of a head, tiles are small (see `Chip`)
FORWARD_WARPS, REGISTERS = 4, 168  # for narrow heads: three programs share a processor
BACKWARD_WARPS = 8  # one program has a processor to itself


@dataclass(frozen=True)
class Chip:
    """The number of processors of a GPU, the bytes of shared memory that a program can use, and how its products read it."""

    processors: int
    shared: int
    has_async_proxy: bool = False  # products read shared memory by a path of their own: Hopper and later

    @property
    def has_large_shared_memory(self) -> bool:
        """Whether there is enough memory for wide heads, or to prefetch the next narrow head (131 to 166 kB).

        Data-centre GPUs have this much; others have 99 kB, enough for a narrow head.
        """
        return self.shared >= 160_000


@cache
def chip_of(device: torch.device) -> Chip:
    if device.type != "cuda":
        return Chip(processors=2, shared=1 << 30)  # Triton's interpreter
    number = torch.cuda.current_device() if device.index is None else device.index
    # From Triton, because torch does not report the shared memory that a program can use.
    seen = triton.runtime.driver.active.utils.get_device_properties(number)
    return Chip(
        seen["multiprocessor_count"], seen["max_shared_mem"], torch.cuda.get_device_capability(number) >= (9, 0)
    )


def fits_a_page(query_segment: Tensor, key_segment: Tensor, head: int) -> bool:
    """Whether the kernel supports this many rows and positions, and heads of this width on this GPU."""
    positions = max(query_segment.shape[1], key_segment.shape[1])
    return (
        positions <= WIDEST
        and len(query_segment) <= MOST_ROWS
        and (head <= NARROW or chip_of(query_segment.device).has_large_shared_memory)
    )


def attend(
    inputs: tuple[Tensor, ...],
    biases: tuple[Tensor, ...],
    query_segment: Tensor,
    key_segment: Tensor,
    heads: int,
    causal: bool,
    window: int = 0,
) -> tuple[Tensor, Tensor]:
    """All heads of softmax(Q K^T / sqrt(E)) V side by side, and the logarithms of the softmax denominators, which the backward
    pass needs. Each of Q, K, V [R, positions, H E] may be part of a wider row. With a window, a query attends to so many
    neighbours on each side."""
    queries, keys, values = inputs
    out = torch.empty_like(queries, memory_format=torch.contiguous_format)
    shape = _shape(queries, keys, heads)
    levels = torch.empty(queries.shape[0], heads, shape["Q"], dtype=torch.float32, device=out.device)
    _attend_forward[(heads, queries.shape[0])](
        queries, keys, values, biases[0], biases[2], query_segment, key_segment, out, levels,
        queries.stride(1), keys.stride(1), out.stride(1), BITS * shape["E"] ** -0.5,
        CAUSAL=causal, WINDOW=window, num_warps=FORWARD_WARPS, maxnreg=REGISTERS if shape["E"] <= NARROW else None, **shape,
    )  # fmt: skip
    return out, levels


def attend_backward(
    gradient: Tensor, levels: Tensor, inputs: tuple[Tensor, ...], biases: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...], query_segment: Tensor, key_segment: Tensor, heads: int, causal: bool, window: int = 0,
) -> Tensor:  # fmt: skip
    """Write the gradients of Q, K and V into `outputs`; returns those of their biases [3 H E]."""
    rows, width = gradient.shape[0], gradient.shape[2]
    sums = torch.empty(rows, 3 * width, dtype=torch.float32, device=gradient.device)
    shape, chip = _shape(inputs[0], inputs[1], heads), chip_of(gradient.device)
    ahead = 2 if shape["E"] <= NARROW and chip.has_large_shared_memory else 1
    _attend_backward[(min(chip.processors, heads * rows),)](
        gradient, *inputs, biases[0], query_segment, key_segment, levels, *outputs, sums,
        gradient.stride(1), inputs[0].stride(1), inputs[1].stride(1), shape["E"] ** -0.5, BITS * shape["E"] ** -0.5,
        heads * rows, CAUSAL=causal, WINDOW=window, AHEAD=ahead, FENCE=ahead > 1 and chip.has_async_proxy,
        num_warps=BACKWARD_WARPS, **shape,
    )  # fmt: skip
    return sum_of_parts(sums, gradient.dtype)


def _shape(queries: Tensor, keys: Tensor, heads: int) -> dict[str, int]:
    query_count, key_count = queries.shape[1], keys.shape[1]
    blocks = {
        name: max(16, triton.next_power_of_2(n)) for name, n in (("BLOCK_Q", query_count), ("BLOCK_K", key_count))
    }
    return {"Q": query_count, "K": key_count, "E": queries.shape[2] // heads, "H": heads, **blocks}


@triton.jit
def _tile(pointer, row, head, positions, count, stride, E: tl.constexpr):
    """Pointers to the tile [positions, E] of one row and head."""
    return pointer + (row * count + positions[:, None]) * stride + head * E + tl.arange(0, E)[None, :]


@triton.jit
def _load(pointer, row, head, positions, count, stride, E: tl.constexpr):
    return tl.load(_tile(pointer, row, head, positions, count, stride, E), (positions < count)[:, None], 0.0)


@triton.jit
def _put(pointer, value, row, head, positions, count, stride, E: tl.constexpr):
    at = _tile(pointer, row, head, positions, count, stride, E)
    tl.store(at, value.to(pointer.dtype.element_ty), (positions < count)[:, None])


@triton.jit
def _with(value, bias, head, E: tl.constexpr):
    """A tile plus its bias, in the precision of the tile."""
    added = tl.load(bias + head * E + tl.arange(0, E)).to(tl.float32)
    return (value.to(tl.float32) + added[None, :]).to(value.dtype)


@triton.jit
def _scores(
    queries, keys, query_segment, key_segment, row, q_positions, k_positions, Q, K, CAUSAL: tl.constexpr, WINDOW: tl.constexpr
):  # fmt: skip
    """Q K^T, with -inf where the mask forbids attention."""
    q_segment = tl.load(query_segment + row * Q + q_positions, q_positions < Q, -1)[:, None]
    k_segment = tl.load(key_segment + row * K + k_positions, k_positions < K, -2)[None, :]
    keep = q_segment == k_segment
    if CAUSAL:
        keep = keep & (q_positions[:, None] >= k_positions[None, :])
    if WINDOW > 0:
        keep = keep & (tl.abs(q_positions[:, None] - k_positions[None, :]) <= WINDOW)
    return tl.where(keep, tl.dot(queries, tl.trans(keys), input_precision="ieee"), float("-inf"))


@triton.jit
def _attend_forward(
    queries, keys, values, q_bias, v_bias, query_segment, key_segment, out, levels, q_stride, k_stride, out_stride, bits,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1).to(tl.int64)  # heads of a row lie side by side
    q_positions, k_positions = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    q = _with(_load(queries, row, head, q_positions, Q, q_stride, E), q_bias, head, E)
    k = _load(keys, row, head, k_positions, K, k_stride, E)
    v = _load(values, row, head, k_positions, K, k_stride, E)
    scores = _scores(q, k, query_segment, key_segment, row, q_positions, k_positions, Q, K, CAUSAL, WINDOW)
    most = tl.maximum(tl.max(scores, 1), LOWEST) * bits  # a number even for padding, which attends to nothing
    powers = tl.exp2(scores * bits - most[:, None])
    seen = tl.sum(powers, 1)
    whole = tl.maximum(seen, 1e-30)
    result = tl.dot(powers.to(v.dtype), v, input_precision="ieee") * (1 / whole)[:, None]
    result += (seen / whole)[:, None] * tl.load(v_bias + head * E + tl.arange(0, E)).to(tl.float32)[None, :]
    _put(out, result, row, head, q_positions, Q, out_stride, E)
    tl.store(levels + (row * H + head) * Q + q_positions, most + tl.log2(whole), q_positions < Q)


@triton.jit
def _after_fence(number):
    """The same number; what was copied into shared memory before is visible to the products that follow.

    With AHEAD = 2, tiles are copied by `cp.async`. PTX demands a fence between such a copy and the product that reads it;
    Triton 3.6 adds none, later versions do (triton-lang/triton#9610).
    """
    return tl.inline_asm_elementwise(
        "fence.proxy.async.shared::cta; mov.b32 $0, $1;", "=r,r", [number], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _attend_backward(
    gradient, queries, keys, values, q_bias, query_segment, key_segment, levels, d_queries, d_keys, d_values, sums,
    out_stride, q_stride, k_stride, scale, bits, tiles,
    Q: tl.constexpr, K: tl.constexpr, E: tl.constexpr, H: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, AHEAD: tl.constexpr, FENCE: tl.constexpr,
):  # fmt: skip
    q_positions, k_positions = tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=AHEAD):
        head, row = tile % H, tl.cast(tile // H, tl.int64)
        q = _with(_load(queries, row, head, q_positions, Q, q_stride, E), q_bias, head, E)
        k = _load(keys, row, head, k_positions, K, k_stride, E)
        v = _load(values, row, head, k_positions, K, k_stride, E)
        of_out = _load(gradient, row, head, q_positions, Q, out_stride, E)
        level = tl.load(levels + (row * H + head) * Q + q_positions, q_positions < Q, float("inf"))
        if FENCE:
            head = _after_fence(head)
        weights = tl.exp2(
            _scores(q, k, query_segment, key_segment, row, q_positions, k_positions, Q, K, CAUSAL, WINDOW) * bits
            - level[:, None]
        )
        of_weights = tl.dot(of_out, tl.trans(v), input_precision="ieee")
        of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None])).to(q.dtype)
        of_values = tl.dot(tl.trans(weights.to(v.dtype)), of_out, input_precision="ieee")
        of_keys = tl.dot(tl.trans(of_scores), q, input_precision="ieee") * scale
        of_queries = tl.dot(of_scores, k, input_precision="ieee") * scale
        _put(d_queries, of_queries, row, head, q_positions, Q, q_stride, E)
        _put(d_keys, of_keys, row, head, k_positions, K, k_stride, E)
        _put(d_values, of_values, row, head, k_positions, K, k_stride, E)
        out = sums + row * 3 * H * E + head * E + tl.arange(0, E)
        tl.store(out, tl.sum(of_queries, 0))
        tl.store(out + H * E, tl.sum(of_keys, 0))
        tl.store(out + 2 * H * E, tl.sum(of_values, 0))
