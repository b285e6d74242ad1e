"""The attention kernels of a decoding step: one new token per row attends to earlier tokens and to the source.

Each kernel computes what the function of the same name in `transduce/continuous/plain.py` computes. A row reads only as
many positions as its sentence has, however long the cache is.

Axes: B slots, W beams, R = B W rows, T positions of a cache, S positions of a source, D d_model, E width of a head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16  # positions that are read at once
LOWEST = tl.constexpr(-1e30)  # a score whose exponential is 0


def attend_to_past(
    product: Tensor, bias: Tensor, keys: Tensor, values: Tensor, table: Tensor, position: Tensor, heads: int
) -> Tensor:
    """Write each row's new keys and values at the position of its slot, and attend to all positions up to it: [R, D].

    `product` [R, 3 D] holds queries, keys and values before their bias; `keys` and `values` are [R, T, D], `position` is
    [B]. `table` [R, T] names the row in which each earlier position of a row was written.
    """
    rows, width = product.shape[0], keys.shape[2]
    out = torch.empty(rows, width, dtype=product.dtype, device=product.device)
    _attend_to_past[(heads, rows)](
        product, bias, keys, values, table, position, out, (width // heads) ** -0.5, keys.shape[1], rows // len(position),
        D=width, E=width // heads, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    return out


def attend_to_source(queries: Tensor, source: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Attend with each row's query [R, D] to the first `lengths` [B] positions of its slot's keys and values [B, S, 2 D]."""
    rows, width = queries.shape
    out = torch.empty_like(queries)
    _attend_to_source[(heads, rows)](
        queries, source, lengths, out, (width // heads) ** -0.5, source.stride(0), source.stride(1), rows // len(lengths),
        D=width, E=width // heads, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _attend_to_past(
    product, bias, keys, values, table, position, out, scale, T, W,
    D: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, features = tl.program_id(1).to(tl.int64), tl.program_id(0) * E + tl.arange(0, E)
    now = tl.load(position + row // W)
    new = product + row * 3 * D + features
    query = tl.load(new).to(tl.float32) + tl.load(bias + features).to(tl.float32)
    key = (tl.load(new + D).to(tl.float32) + tl.load(bias + D + features).to(tl.float32)).to(keys.dtype.element_ty)
    value = (tl.load(new + 2 * D).to(tl.float32) + tl.load(bias + 2 * D + features).to(tl.float32)).to(
        values.dtype.element_ty
    )
    tl.store(keys + (row * T + now) * D + features, key)
    tl.store(values + (row * T + now) * D + features, value)
    most = tl.sum(query * key.to(tl.float32), 0) * scale
    total, result = 1.0, value.to(tl.float32)
    begin = now * 0
    while begin < now:
        positions = begin + tl.arange(0, BLOCK)
        inside = positions < now
        rows = tl.load(table + row * T + positions, inside, 0).to(tl.int64)
        at = (rows * T + positions)[:, None] * D + features[None, :]
        past_keys = tl.load(keys + at, inside[:, None], 0.0).to(tl.float32)
        past_values = tl.load(values + at, inside[:, None], 0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(past_keys * query[None, :], 1) * scale, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 0))
        powers, less = tl.exp(scores - higher), tl.exp(most - higher)
        result = result * less + tl.sum(powers[:, None] * past_values, 0)
        total = total * less + tl.sum(powers, 0)
        most = higher
        begin += BLOCK
    tl.store(out + row * D + features, (result / total).to(out.dtype.element_ty))


@triton.jit
def _attend_to_source(
    queries, source, lengths, out, scale, slot_stride, position_stride, W, D: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row, features = tl.program_id(1).to(tl.int64), tl.program_id(0) * E + tl.arange(0, E)
    slot = row // W
    length = tl.load(lengths + slot)
    query = tl.load(queries + row * D + features).to(tl.float32) * scale
    most = length.to(tl.float32) * 0.0 + LOWEST  # a scalar on the device, like the value the loop assigns to it
    total = 0.0
    result = tl.zeros((E,), tl.float32)
    begin = length * 0
    while begin < length:
        positions = begin + tl.arange(0, BLOCK)
        inside = positions < length
        at = source + (slot * slot_stride + positions * position_stride)[:, None] + features[None, :]
        keys = tl.load(at, inside[:, None], 0.0).to(tl.float32)
        values = tl.load(at + D, inside[:, None], 0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(keys * query[None, :], 1), LOWEST)
        higher = tl.maximum(most, tl.max(scores, 0))
        powers, less = tl.where(inside, tl.exp(scores - higher), 0.0), tl.exp(most - higher)
        result = result * less + tl.sum(powers[:, None] * values, 0)
        total = total * less + tl.sum(powers, 0)
        most = higher
        begin += BLOCK
    tl.store(out + row * D + features, (result / tl.maximum(total, 1e-30)).to(out.dtype.element_ty))
