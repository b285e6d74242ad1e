"""The kernel that finds the most probable classes of a row without writing the log-probabilities of all classes.

It computes what `best` in `transduce/continuous/plain.py` computes. Axes: R rows, V logits of a row, K classes wanted.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOWEST = tl.constexpr(-1e30)  # a logit whose exponential is 0
GROUP, GROUPS = 64, 64  # logits that share one maximum, and groups that are read together
MAX_BEST = 32  # classes are found one after the other: for more of them this is no faster


def best(logits: Tensor, classes: int, count: int, forced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, as log-probabilities and ids [R, K], and the log-probability of its
    forced class [R]; logits beyond `classes` are padding."""
    rows, width = logits.shape
    groups, count = triton.cdiv(classes, GROUP), min(count, classes)
    whole, forced_log_probs = logits.new_empty(2, rows, dtype=torch.float32)
    maxima = logits.new_empty(rows, groups, dtype=torch.float32)
    values, ids = logits.new_empty(rows, count, dtype=torch.float32), forced.new_empty(rows, count)
    _summary[(rows,)](
        logits, whole, maxima, width, classes, groups,
        GROUP=GROUP, GROUPS=GROUPS, TURNS=triton.cdiv(groups, GROUPS), num_warps=4,
    )  # fmt: skip
    _best[(rows,)](
        logits, whole, maxima, forced, values, ids, forced_log_probs, width, classes, groups,
        K=count, KEPT=triton.next_power_of_2(count), GROUP=GROUP, GROUPS=triton.next_power_of_2(groups), num_warps=1,
    )  # fmt: skip
    return values, ids, forced_log_probs


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
    logits, whole, maxima, forced, values, ids, forced_log_probs, V, classes, groups,
    K: tl.constexpr, KEPT: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    total = tl.load(whole + row)
    taken = tl.maximum(tl.load(forced + row), 0)
    tl.store(forced_log_probs + row, tl.minimum(tl.load(logits + row * V + taken).to(tl.float32) - total, 0.0))
    # The best classes are in the groups with the best maxima.
    group, slot = tl.arange(0, GROUPS), tl.arange(0, KEPT)
    rest = tl.load(maxima + row * groups + group, group < groups, float("-inf"))
    chosen = tl.zeros((KEPT,), tl.int32) + groups  # no group
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
        # Logits that are not numbers have no best class; whatever is chosen must still be a class.
        tl.store(ids + row * K + k, tl.minimum(of * GROUP + at, classes - 1))
        value = tl.where(there == of * GROUP + at, float("-inf"), value)
