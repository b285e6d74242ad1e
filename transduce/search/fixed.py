"""Greedy and beam search whose tensors never change shape or place, so that a GPU can record a step and replay it.

The same searches as in `walk.py` and `beam.py`, whose results they must equal. A sentence occupies a slot; each is at a
place of its own, so that a slot whose sentence is done can take the next one while the others go on. Nothing here asks
the device for a value; whoever drives it looks at `finished` now and then.

Axes: B slots, W beams, R = B W rows, K candidates of a row or slot, T places of an output, N slots that are looked at.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from transduce.search.beam import best_divisors, force
from transduce.search.lattice import Alive, Candidates, Pool, Trail
from transduce.search.penalty import Penalty
from transduce.search.step import FREE, Paths


class FixedWalk:
    """Greedy search: the most probable token, until `</s>`."""

    def __init__(self, slots: int, places: int, start: int, end: int, device: torch.device) -> None:
        self.start, self.end = start, end
        self.forced = torch.full((slots, places), end, device=device)
        self.place = torch.zeros(slots, dtype=torch.long, device=device)
        self.tokens = torch.full((slots,), start, device=device)
        self.taken = torch.full((slots, places), end, device=device)
        self.log_probs = torch.zeros(slots, places, device=device)
        self.lengths = torch.ones_like(self.place)  # an empty slot has nothing to do

    @property
    def finished(self) -> Tensor:
        return self.lengths > 0

    @property
    def must(self) -> Tensor:
        """The token each row must take now, or FREE [R]."""
        return self.forced.gather(1, self.place[:, None])[:, 0]

    def put(self, slots: Tensor, forced: Tensor, limits: Tensor) -> None:
        """New sentences into these slots [N]; `forced` [N, up to T] as `forced_tokens` gives it."""
        self.forced.index_fill_(0, slots, self.end)
        self.forced[slots, : forced.shape[1]] = forced
        for of_slot, value in ((self.place, 0), (self.tokens, self.start), (self.lengths, 0)):
            of_slot.index_fill_(0, slots, value)

    def advance(self, values: Tensor, tokens: Tensor, of_forced: Tensor) -> None:
        """Take the best of each row [R, K], or what it must take, whose log-probability is `of_forced` [R]."""
        must, at = self.must, self.place[:, None]
        free, going = must == FREE, ~self.finished
        token = torch.where(free, tokens[:, 0], must)
        log_prob = torch.where(free, values[:, 0], of_forced)
        self.taken.scatter_(1, at, torch.where(going, token, self.taken.gather(1, at)[:, 0])[:, None])
        self.log_probs.scatter_(1, at, torch.where(going, log_prob, self.log_probs.gather(1, at)[:, 0])[:, None])
        ends = going & (token == self.end)
        self.lengths.copy_(torch.where(ends, self.place + 1, self.lengths))
        self.place.copy_(self.place + (going & ~ends))  # who ends stays there: no place is beyond the last
        self.tokens.copy_(token)

    def paths(self, slots: Tensor, places: int, n_best: int) -> Paths:
        """What was found in these slots, whose outputs have no more places: copies, so that the slots are free."""
        return Paths(self.taken[slots, :places], self.log_probs[slots, :places], self.lengths[slots])


class FixedBeam:
    """Beam search; `parents` are the rows that the rows of the next step go on from."""

    def __init__(
        self, slots: int, places: int, start: int, end: int, beam: int, penalty: Penalty, device: torch.device
    ) -> None:
        self.start, self.end, self.beam, self.penalty = start, end, beam, penalty
        self.kernel = _kernel(beam) if device.type == "cuda" else None
        self.forced = torch.full((slots, places), end, device=device)
        self.divisors = torch.zeros(slots, places + 1, dtype=torch.float64, device=device)
        self.penalties = penalty(torch.arange(places + 1, device=device).double())  # by length
        self.place = torch.zeros(slots, dtype=torch.long, device=device)
        self.slot = torch.arange(slots, device=device)
        zeros = torch.zeros(slots, beam, dtype=torch.long, device=device)
        self.alive = Alive(self.slot, zeros + start, zeros.double() - torch.inf, zeros.clone())
        self.parents = torch.arange(slots * beam, device=device)
        self.trail = Trail.empty(torch.cat((self.forced, self.forced[:, :1]), 1), 2 * beam)  # the last is for the done
        self.pool = Pool.empty(slots, beam, device)
        self.finished = torch.ones(slots, dtype=torch.bool, device=device)

    @property
    def tokens(self) -> Tensor:
        return self.alive.tokens.flatten()

    @property
    def must(self) -> Tensor:
        return self.forced.gather(1, self.place[:, None])[:, 0].repeat_interleave(self.beam)

    def put(self, slots: Tensor, forced: Tensor, limits: Tensor) -> None:
        """New sentences into these slots [N], which may become `limits` [N] long."""
        width = forced.shape[1]
        self.forced.index_fill_(0, slots, self.end)
        self.forced[slots, :width] = forced
        self.divisors.index_fill_(0, slots, 0)
        self.divisors[slots, : width + 1] = best_divisors(self.penalty, limits, width)
        alive, pool = self.alive, self.pool
        for zero in (self.place, alive.slots, pool.lengths, pool.slots, self.finished):
            zero.index_fill_(0, slots, 0)
        alive.tokens.index_fill_(0, slots, self.start)
        for score in (alive.totals, pool.scores):
            score.index_fill_(0, slots, -torch.inf)
        alive.totals[:, 0].index_fill_(0, slots, 0)  # one beam at the start, and the others impossible

    def advance(self, values: Tensor, tokens: Tensor, of_forced: Tensor) -> None:
        """Go on with the best candidates [R, K] of the rows, K = 2 W; `of_forced` [R] is what a forced token has."""
        if self.kernel and values.shape[1] == 2 * self.beam:
            self.kernel(self, values, tokens, of_forced)
            return
        found = self._candidates(*force(values, tokens, self.must, of_forced))
        ended = found.tokens == self.end
        self.trail.record(torch.where(self.finished, self.forced.shape[1], self.place), self.slot, found)
        length = self.place + 1
        self.pool.add(self.slot, found, ended, length[:, None], self.penalty)
        following = self.alive.continue_with(found, ended, self.beam)
        attainable = following.totals[:, 0] / self.divisors.gather(1, length[:, None])[:, 0]
        self.finished |= ~(attainable > self.pool.scores[:, -1])
        beams = found.beams.gather(1, following.slots)
        self.parents.copy_((self.slot[:, None] * self.beam + beams).flatten())
        self.alive.tokens.copy_(following.tokens)
        self.alive.totals.copy_(following.totals.masked_fill(self.finished[:, None], -torch.inf))
        self.alive.slots.copy_(following.slots)
        self.place.copy_(torch.where(self.finished, self.place, length).clamp(max=self.forced.shape[1] - 1))

    def _candidates(self, values: Tensor, tokens: Tensor) -> Candidates:
        sums = (self.alive.totals.flatten()[:, None] + values).view(len(self.slot), -1)
        totals, place = sums.topk(2 * self.beam, dim=1)
        beams = place // values.shape[1]
        return Candidates(
            totals=totals,
            log_probs=values.view(len(self.slot), -1).gather(1, place),
            tokens=tokens.view(len(self.slot), -1).gather(1, place),
            beams=beams,
            origins=self.alive.slots.gather(1, beams),
        )

    def paths(self, slots: Tensor, places: int, n_best: int) -> Paths:
        """The `n_best` outputs found in these slots, which have no more places."""
        return self.trail.only(slots, places).follow(self.pool.only(slots).best(n_best))


def _kernel(beam: int) -> Callable[..., Any] | None:
    """What takes the decisions of a step at once, where there is Triton; for more beams it would be no faster."""
    with suppress(ImportError):
        from transduce.search.beam_kernel import MOST_BEAMS, advance

        return advance if beam <= MOST_BEAMS else None
    return None
