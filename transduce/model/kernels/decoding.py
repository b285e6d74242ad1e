"""Attention of one new token a row: to the past through a table of rows, and to the source its slot keeps.

Beams change places by changing the table, not the cache. Every row reads as many places as it has, whatever room there
is. Axes: B slots, W beams, R = B W rows, T places of a cache, S places of a source, D d_model, E width of a head, V ids.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES = 16  # read at once
LOWEST = tl.constexpr(-1e30)  # a score that counts for nothing
GROUP, GROUPS = 64, 64  # ids with one maximum, and groups looked at together
MOST_BEST = 32  # classes of a row that are looked for one after the other


def attend_to_past(
    product: Tensor, bias: Tensor, keys: Tensor, values: Tensor, table: Tensor, place: Tensor, heads: int
) -> Tensor:
    """Write the new keys and values of each row [R, 3 D] at its slot's place, and attend to all up to it: [R, D].

    `keys` and `values` are [R, T, D]; `table` [R, T] says in which row each earlier place of a row was written.
    """
    rows, width = product.shape[0], keys.shape[2]
    out = torch.empty(rows, width, dtype=product.dtype, device=product.device)
    _attend_to_past[(heads, rows)](
        product, bias, keys, values, table, place, out, (width // heads) ** -0.5, keys.shape[1], rows // len(place),
        D=width, E=width // heads, PLACES=PLACES, num_warps=1,
    )  # fmt: skip
    return out


def attend_to_source(queries: Tensor, source: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Attend with each row's query [R, D] to the `lengths` [B] first places of its slot's keys and values [B, S, 2 D]."""
    rows, width = queries.shape
    out = torch.empty_like(queries)
    _attend_to_source[(heads, rows)](
        queries, source, lengths, out, (width // heads) ** -0.5, source.stride(0), source.stride(1), rows // len(lengths),
        D=width, E=width // heads, PLACES=PLACES, num_warps=1,
    )  # fmt: skip
    return out


def best(logits: Tensor, classes: int, count: int, must: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, as log-probabilities and ids [R, K], and the log-probability of the
    class it must take [R]; logits beyond the classes are padding."""
    rows, width = logits.shape
    groups, count = triton.cdiv(classes, GROUP), min(count, classes)
    whole, of_must = logits.new_empty(2, rows, dtype=torch.float32)
    maxima = logits.new_empty(rows, groups, dtype=torch.float32)
    values, ids = logits.new_empty(rows, count, dtype=torch.float32), must.new_empty(rows, count)
    _summary[(rows,)](
        logits, whole, maxima, width, classes, groups,
        GROUP=GROUP, GROUPS=GROUPS, TURNS=triton.cdiv(groups, GROUPS), num_warps=4,
    )  # fmt: skip
    _best[(rows,)](
        logits, whole, maxima, must, values, ids, of_must, width, classes, groups,
        K=count, KEPT=triton.next_power_of_2(count), GROUP=GROUP, GROUPS=triton.next_power_of_2(groups), num_warps=1,
    )  # fmt: skip
    return values, ids, of_must


@triton.jit
def _attend_to_past(
    product, bias, keys, values, table, place, out, scale, T, W,
    D: tl.constexpr, E: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    row, features = tl.program_id(1).to(tl.int64), tl.program_id(0) * E + tl.arange(0, E)
    now = tl.load(place + row // W)
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
        places = begin + tl.arange(0, PLACES)
        inside = places < now
        rows = tl.load(table + row * T + places, inside, 0).to(tl.int64)
        at = (rows * T + places)[:, None] * D + features[None, :]
        past_keys = tl.load(keys + at, inside[:, None], 0.0).to(tl.float32)
        past_values = tl.load(values + at, inside[:, None], 0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(past_keys * query[None, :], 1) * scale, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 0))
        powers, less = tl.exp(scores - higher), tl.exp(most - higher)
        result = result * less + tl.sum(powers[:, None] * past_values, 0)
        total = total * less + tl.sum(powers, 0)
        most = higher
        begin += PLACES
    tl.store(out + row * D + features, (result / total).to(out.dtype.element_ty))


@triton.jit
def _attend_to_source(
    queries, source, lengths, out, scale, of_slot, of_place, W, D: tl.constexpr, E: tl.constexpr, PLACES: tl.constexpr
):  # fmt: skip
    row, features = tl.program_id(1).to(tl.int64), tl.program_id(0) * E + tl.arange(0, E)
    slot = row // W
    length = tl.load(lengths + slot)
    query = tl.load(queries + row * D + features).to(tl.float32) * scale
    most = length.to(tl.float32) * 0.0 + LOWEST  # a number of the device, as it becomes in the loop
    total = 0.0
    result = tl.zeros((E,), tl.float32)
    begin = length * 0
    while begin < length:
        places = begin + tl.arange(0, PLACES)
        inside = places < length
        at = source + (slot * of_slot + places * of_place)[:, None] + features[None, :]
        keys = tl.load(at, inside[:, None], 0.0).to(tl.float32)
        values = tl.load(at + D, inside[:, None], 0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(keys * query[None, :], 1), LOWEST)
        higher = tl.maximum(most, tl.max(scores, 0))
        powers, less = tl.where(inside, tl.exp(scores - higher), 0.0), tl.exp(most - higher)
        result = result * less + tl.sum(powers[:, None] * values, 0)
        total = total * less + tl.sum(powers, 0)
        most = higher
        begin += PLACES
    tl.store(out + row * D + features, (result / tl.maximum(total, 1e-30)).to(out.dtype.element_ty))


@triton.jit
def _summary(
    logits, whole, maxima, V, classes, groups, GROUP: tl.constexpr, GROUPS: tl.constexpr, TURNS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    most, powers = tl.full((GROUPS,), LOWEST, tl.float32), tl.zeros((GROUPS,), tl.float32)
    for turn in range(TURNS):
        group = turn * GROUPS + tl.arange(0, GROUPS)
        ids = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        value = tl.load(logits + row * V + ids, ids < classes, float("-inf")).to(tl.float32)
        highest = tl.max(value, 1)
        tl.store(maxima + row * groups + group, highest, group < groups)
        higher = tl.maximum(tl.maximum(most, highest), LOWEST)
        powers = powers * tl.exp(most - higher) + tl.sum(tl.exp(value - higher[:, None]), 1)
        most = higher
    top = tl.max(most, 0)
    tl.store(whole + row, top + tl.log(tl.sum(powers * tl.exp(most - top), 0)))


@triton.jit
def _best(
    logits, whole, maxima, must, values, ids, of_must, V, classes, groups,
    K: tl.constexpr, KEPT: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    total = tl.load(whole + row)
    taken = tl.maximum(tl.load(must + row), 0)
    tl.store(of_must + row, tl.minimum(tl.load(logits + row * V + taken).to(tl.float32) - total, 0.0))
    # The best classes are in the groups with the best maxima.
    group, slot = tl.arange(0, GROUPS), tl.arange(0, KEPT)
    rest = tl.load(maxima + row * groups + group, group < groups, float("-inf"))
    chosen = tl.zeros((KEPT,), tl.int32) + groups  # none
    for k in tl.static_range(K):
        highest, at = tl.max(rest, 0, return_indices=True)
        chosen = tl.where(slot == k, tl.where(highest > float("-inf"), at, groups), chosen)
        rest = tl.where(group == at, float("-inf"), rest)
    lane = tl.arange(0, GROUP)
    there = chosen[:, None] * GROUP + lane[None, :]
    value = tl.load(logits + row * V + there, there < classes, float("-inf")).to(tl.float32)
    for k in tl.static_range(K):
        of_slot, lanes = tl.max(value, 1, return_indices=True)
        highest, winner = tl.max(of_slot, 0, return_indices=True)
        at, of = tl.sum(tl.where(slot == winner, lanes, 0), 0), tl.sum(tl.where(slot == winner, chosen, 0), 0)
        tl.store(values + row * K + k, tl.minimum(highest - total, 0.0))
        tl.store(ids + row * K + k, of * GROUP + at)
        value = tl.where(there == of * GROUP + at, float("-inf"), value)
