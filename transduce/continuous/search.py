"""Greedy and beam search over slots: their tensors never change shape or address, so a GPU can capture and replay a step.

They find what `transduce/search/walk.py` and `transduce/search/beam.py` find. Each slot holds one sentence and has a
position of its own, so a slot whose sentence is finished can take the next one while the others continue. No method here
waits for the device; `SlotPool` copies `finished` to the host from time to time.

Axes: B slots, W beams, R = B W rows, K candidates of a row or slot, T positions of an output, N chosen slots.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from transduce.search.beam import best_divisors, force
from transduce.search.beam_state import Alive, BackPointers, FinishedHypotheses
from transduce.search.penalty import Penalty
from transduce.search.step import FREE, Paths


class SlotGreedySearch:
    """Greedy search: the most probable token, until `</s>`."""

    def __init__(self, slots: int, positions: int, start: int, end: int, device: torch.device) -> None:
        self.start, self.end = start, end
        self.forced = torch.full((slots, positions), end, device=device)
        self.position = torch.zeros(slots, dtype=torch.long, device=device)
        self.tokens = torch.full((slots,), start, device=device)
        self.taken = torch.full((slots, positions), end, device=device)
        self.log_probs = torch.zeros(slots, positions, device=device)
        self.lengths = torch.ones_like(self.position)  # an empty slot counts as finished

    @property
    def finished(self) -> Tensor:
        return self.lengths > 0

    @property
    def forced_now(self) -> Tensor:
        """The token each row must take in this step, or FREE [R]."""
        return self.forced.gather(1, self.position[:, None])[:, 0]

    def put(self, slots: Tensor, forced: Tensor, limits: Tensor) -> None:
        """Start new sentences in these slots [N]; `forced` [N, up to T] comes from `forced_tokens`."""
        self.forced.index_fill_(0, slots, self.end)
        self.forced[slots, : forced.shape[1]] = forced
        for of_slot, value in ((self.position, 0), (self.tokens, self.start), (self.lengths, 0)):
            of_slot.index_fill_(0, slots, value)

    def advance(self, values: Tensor, tokens: Tensor, forced_log_probs: Tensor) -> None:
        """Take the best token of each row, given its candidates [R, K], or its forced token with this log-probability [R]."""
        forced, at = self.forced_now, self.position[:, None]
        free, going = forced == FREE, ~self.finished
        token = torch.where(free, tokens[:, 0], forced)
        log_prob = torch.where(free, values[:, 0], forced_log_probs)
        self.taken.scatter_(1, at, torch.where(going, token, self.taken.gather(1, at)[:, 0])[:, None])
        self.log_probs.scatter_(1, at, torch.where(going, log_prob, self.log_probs.gather(1, at)[:, 0])[:, None])
        ends = going & (token == self.end)
        self.lengths.copy_(torch.where(ends, self.position + 1, self.lengths))
        # A row that ends stays there: no position is beyond the last.
        self.position.copy_(self.position + (going & ~ends))
        self.tokens.copy_(token)

    def paths(self, slots: Tensor, positions: int, n_best: int) -> Paths:
        """Copies of the outputs of these slots, cut to this many positions: the slots can be reused."""
        return Paths(self.taken[slots, :positions], self.log_probs[slots, :positions], self.lengths[slots])


class SlotBeamSearch:
    """Beam search; row r of the next step continues row `parents[r]` of this one."""

    def __init__(
        self, slots: int, positions: int, start: int, end: int, beam: int, penalty: Penalty, device: torch.device
    ) -> None:
        self.start, self.end, self.beam, self.penalty = start, end, beam, penalty
        self.kernel = _kernel(beam) if device.type == "cuda" else None
        self.forced = torch.full((slots, positions), end, device=device)
        self.divisors = torch.zeros(slots, positions + 1, dtype=torch.float64, device=device)
        self.penalties = penalty(torch.arange(positions + 1, device=device).double())  # by length
        self.position = torch.zeros(slots, dtype=torch.long, device=device)
        self.slot = torch.arange(slots, device=device)
        zeros = torch.zeros(slots, beam, dtype=torch.long, device=device)
        self.alive = Alive(self.slot, zeros + start, zeros.double() - torch.inf, zeros.clone())
        self.parents = torch.arange(slots * beam, device=device)
        # With one position more, to which finished slots write.
        self.pointers = BackPointers.empty(torch.cat((self.forced, self.forced[:, :1]), 1), 2 * beam)
        self.kept = FinishedHypotheses.empty(slots, beam, device)
        self.finished = torch.ones(slots, dtype=torch.bool, device=device)

    @property
    def tokens(self) -> Tensor:
        return self.alive.tokens.flatten()

    @property
    def forced_now(self) -> Tensor:
        """The token each row must take in this step, or FREE [R]."""
        return self.forced.gather(1, self.position[:, None])[:, 0].repeat_interleave(self.beam)

    def put(self, slots: Tensor, forced: Tensor, limits: Tensor) -> None:
        """Start new sentences in these slots [N], whose outputs have at most `limits` [N] tokens."""
        width = forced.shape[1]
        self.forced.index_fill_(0, slots, self.end)
        self.forced[slots, :width] = forced
        self.divisors.index_fill_(0, slots, 0)
        self.divisors[slots, : width + 1] = best_divisors(self.penalty, limits, width)
        alive, kept = self.alive, self.kept
        for zero in (self.position, alive.ranks, kept.lengths, kept.ranks, self.finished):
            zero.index_fill_(0, slots, 0)
        alive.tokens.index_fill_(0, slots, self.start)
        for score in (alive.totals, kept.scores):
            score.index_fill_(0, slots, -torch.inf)
        alive.totals[:, 0].index_fill_(0, slots, 0)  # one beam is possible at the start, the others are not

    def advance(self, values: Tensor, tokens: Tensor, forced_log_probs: Tensor) -> None:
        """Continue with the best candidates [R, K] of the rows, K = 2 W; `forced_log_probs` [R] belong to forced tokens."""
        if self.kernel and values.shape[1] == 2 * self.beam:
            self.kernel(self, values, tokens, forced_log_probs)
            return
        values, tokens = force(values, tokens, self.forced_now, forced_log_probs)
        found = self.alive.best_continuations(values, tokens, 2 * self.beam)
        ended = found.tokens == self.end
        self.pointers.record(torch.where(self.finished, self.forced.shape[1], self.position), self.slot, found)
        length = self.position + 1
        self.kept.add(self.slot, found, ended, length[:, None], self.penalty)
        following = self.alive.continue_with(found, ended, self.beam)
        attainable = following.totals[:, 0] / self.divisors.gather(1, length[:, None])[:, 0]
        self.finished |= ~(attainable > self.kept.scores[:, -1])
        beams = found.beams.gather(1, following.ranks)
        self.parents.copy_((self.slot[:, None] * self.beam + beams).flatten())
        self.alive.tokens.copy_(following.tokens)
        self.alive.totals.copy_(following.totals.masked_fill(self.finished[:, None], -torch.inf))
        self.alive.ranks.copy_(following.ranks)
        self.position.copy_(torch.where(self.finished, self.position, length).clamp(max=self.forced.shape[1] - 1))

    def paths(self, slots: Tensor, positions: int, n_best: int) -> Paths:
        """Copies of the `n_best` outputs of these slots, cut to this many positions."""
        return self.pointers.only(slots, positions).follow(self.kept.only(slots).best(n_best))


def _kernel(beam: int) -> Callable[..., Any] | None:
    """The kernel that decides a step at once, if Triton is there; for wide beams it would be no faster."""
    with suppress(ImportError):
        from transduce.continuous.kernels.beam import MAX_BEAM, advance

        return advance if beam <= MAX_BEAM else None
    return None
