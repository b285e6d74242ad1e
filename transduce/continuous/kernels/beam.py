"""All decisions of one step of beam search in one kernel, instead of some sixty in `SlotBeamSearch.advance`.

One program decides for one slot. Import this only where there is a GPU or Triton's interpreter.
Axes: B slots, W beams, K = 2 W candidates of a row and of a slot, T positions of an output.
"""

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from transduce.continuous.search import SlotBeamSearch

MAX_BEAM = 16  # candidates are found one after the other: for wider beams this is no faster
FREE = tl.constexpr(-1)  # the value of `transduce.search.step.FREE`, which a kernel cannot import


def advance(search: "SlotBeamSearch", values: Tensor, tokens: Tensor, forced_log_probs: Tensor) -> None:
    """Do what `SlotBeamSearch.advance` does without this kernel; that method is the oracle of its test."""
    slots, positions = search.forced.shape
    candidates, width = values.shape[1], search.beam
    _advance[(slots,)](
        values, tokens, forced_log_probs, search.forced, search.position, search.finished.view(torch.int8), search.divisors, search.penalties,
        search.alive.tokens, search.alive.totals, search.alive.ranks, search.parents, search.kept.scores, search.kept.lengths,
        search.kept.ranks, search.pointers.tokens, search.pointers.log_probs, search.pointers.origins, slots, positions, search.end,
        W=width, K=candidates, WIDE=triton.next_power_of_2(width), RANKS=triton.next_power_of_2(candidates),
        CELLS=triton.next_power_of_2(width * candidates), POOL=triton.next_power_of_2(2 * width), num_warps=1,
    )  # fmt: skip


@triton.jit
def _first_best(scores, free, cells, COUNT: tl.constexpr):
    """The free cell with the best score, and the first one of equal scores; any free cell if a score is not a number."""
    best = tl.max(tl.where(free, scores, float("-inf")), 0)
    first = tl.min(tl.where(free & (scores == best), cells, COUNT), 0)
    return tl.where(first < COUNT, first, tl.min(tl.where(free, cells, COUNT - 1), 0))


@triton.jit
def _advance(
    values, tokens, forced_log_probs, forced, position, finished, divisors, penalties,
    alive_tokens, alive_totals, alive_ranks, parents, kept_scores, kept_lengths, kept_ranks,
    pointer_tokens, pointer_log_probs, pointer_origins, B, T, end,
    W: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr, RANKS: tl.constexpr, CELLS: tl.constexpr, POOL: tl.constexpr,
):  # fmt: skip
    slot = tl.program_id(0).to(tl.int64)
    now, done = tl.load(position + slot), tl.load(finished + slot) != 0
    forced_now, length = tl.load(forced + slot * T + now), now + 1
    rank, wide, pooled = tl.arange(0, RANKS), tl.arange(0, WIDE), tl.arange(0, POOL)

    # Rank the best K among all continuations of all beams.
    cell = tl.arange(0, CELLS)
    free, beam = cell < W * K, cell // K
    value = tl.load(values + slot * W * K + cell, free, float("-inf"))
    token = tl.load(tokens + slot * W * K + cell, free, 0)
    only = tl.load(forced_log_probs + slot * W + beam, free, float("-inf"))
    value = tl.where(forced_now == FREE, value, tl.where(cell % K == 0, only, float("-inf")))
    token = tl.where(forced_now == FREE, token, forced_now)
    total = tl.load(alive_totals + slot * W + beam, free, float("-inf")) + value.to(tl.float64)
    totals, log_probs = tl.zeros([RANKS], tl.float64), tl.zeros([RANKS], tl.float32)
    found, beams = tl.zeros([RANKS], tl.int64), tl.zeros([RANKS], tl.int32)
    for r in tl.static_range(K):
        chosen = cell == _first_best(total, free, cell, CELLS)
        totals = tl.where(rank == r, tl.sum(tl.where(chosen, total, 0.0), 0), totals)
        log_probs = tl.where(rank == r, tl.sum(tl.where(chosen, value, 0.0), 0), log_probs)
        found = tl.where(rank == r, tl.sum(tl.where(chosen, token, 0), 0), found)
        beams = tl.where(rank == r, tl.sum(tl.where(chosen, beam, 0), 0), beams)
        free = free & (cell != tl.sum(tl.where(chosen, cell, 0), 0))
    real = rank < K
    at = (tl.where(done, T, now) * B + slot) * K + rank
    tl.store(pointer_tokens + at, found, real)
    tl.store(pointer_log_probs + at, log_probs, real)
    tl.store(pointer_origins + at, tl.load(alive_ranks + slot * W + beams, real, 0), real)

    # Add the continuations among the first W that end to the finished hypotheses, and keep the best W of both.
    ended = found == end
    counts = ended & (totals > float("-inf"))
    scores = tl.where(counts, totals / tl.load(penalties + length), float("-inf"))
    newest = rank[None, :] == (pooled - W)[:, None]
    score = tl.load(kept_scores + slot * W + pooled, pooled < W, float("-inf"))
    score = tl.where(pooled < W, score, tl.sum(tl.where(newest, scores[None, :], 0.0), 1))
    lengths = tl.load(kept_lengths + slot * W + pooled, pooled < W, 0)
    lengths = tl.where(pooled < W, lengths, tl.sum(tl.where(newest & ended[None, :], length, 0), 1))
    origins = tl.load(kept_ranks + slot * W + pooled, pooled < W, 0)
    origins = tl.where(pooled < W, origins, pooled - W)
    left, last = pooled < 2 * W, tl.full([], float("-inf"), tl.float64)
    for n in tl.static_range(W):
        chosen = pooled == _first_best(score, left, pooled, POOL)
        last = tl.sum(tl.where(chosen, score, 0.0), 0)
        tl.store(kept_scores + slot * W + n, last)
        tl.store(kept_lengths + slot * W + n, tl.sum(tl.where(chosen, lengths, 0), 0))
        tl.store(kept_ranks + slot * W + n, tl.sum(tl.where(chosen, origins, 0), 0))
        left = left & (pooled != tl.sum(tl.where(chosen, pooled, 0), 0))

    # Continue with the first W that do not end, unless none of them can still beat the hypotheses kept.
    goes, ends = (real & (found != end)).to(tl.int32), (real & (found == end)).to(tl.int32)
    order = tl.where(goes > 0, tl.cumsum(goes, 0) - 1, tl.sum(goes, 0) + tl.cumsum(ends, 0) - 1)
    chosen = (order[None, :] == wide[:, None]) & real[None, :]
    next_totals = tl.sum(tl.where(chosen, totals[None, :], 0.0), 1)
    best = tl.sum(tl.where(wide == 0, next_totals, 0.0), 0)
    over = done | ~(best / tl.load(divisors + slot * (T + 1) + length) > last)
    inside = wide < W
    tl.store(alive_tokens + slot * W + wide, tl.sum(tl.where(chosen, found[None, :], 0), 1), inside)
    tl.store(alive_totals + slot * W + wide, tl.where(over, float("-inf"), next_totals), inside)
    tl.store(alive_ranks + slot * W + wide, tl.sum(tl.where(chosen, rank[None, :], 0), 1).to(tl.int64), inside)
    tl.store(parents + slot * W + wide, slot * W + tl.sum(tl.where(chosen, beams[None, :], 0), 1), inside)
    tl.store(position + slot, tl.minimum(tl.where(over, now, length), T - 1))
    tl.store(finished + slot, over.to(tl.int8))
