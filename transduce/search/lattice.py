"""The data of beam search: the candidates of a step, the active beams, back-pointers, and finished hypotheses.

Axes: B sentences (A of them unfinished), W beams alive, K candidates of a sentence, N hypotheses kept,
T places of an output.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.search.penalty import Penalty
from transduce.search.step import Paths


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence, most probable first; all [A, K]."""

    totals: Tensor  # log-probability of the output so far, float64 so that summing loses nothing
    log_probs: Tensor  # of its last token
    tokens: Tensor  # its last token
    beams: Tensor  # the beam it continues
    origins: Tensor  # the slot its beam had among the candidates of the step before


@dataclass(frozen=True)
class Alive:
    """The beams that go on, most probable first; all but `sentence` [A, W]."""

    sentence: Tensor  # [A], which of the B it is
    tokens: Tensor  # the last one of each
    totals: Tensor  # log-probabilities so far
    slots: Tensor  # where each stood among the candidates of the last step

    @staticmethod
    def at_start(sentences: int, start: int, device: torch.device) -> "Alive":
        zeros = torch.zeros(sentences, 1, dtype=torch.long, device=device)
        return Alive(torch.arange(sentences, device=device), zeros + start, zeros.double(), zeros)

    def continue_with(self, found: Candidates, ended: Tensor, beam: int) -> "Alive":
        """The best candidates that have not ended."""
        count = min(beam, found.tokens.shape[1] - self.tokens.shape[1])  # each beam ends in at most one of them
        slots = ended.byte().sort(dim=1, stable=True).indices[:, :count]
        return Alive(self.sentence, found.tokens.gather(1, slots), found.totals.gather(1, slots), slots)

    def only(self, rows: Tensor) -> "Alive":
        return Alive(self.sentence[rows], self.tokens[rows], self.totals[rows], self.slots[rows])


@dataclass(frozen=True)
class Pool:
    """The best hypotheses of each sentence, best first; all [B, N]; where there is none yet the length is 0."""

    scores: Tensor
    lengths: Tensor  # counting `</s>`
    slots: Tensor  # where its `</s>` stood among the candidates of its last step

    @staticmethod
    def empty(sentences: int, size: int, device: torch.device) -> "Pool":
        zeros = torch.zeros(sentences, size, dtype=torch.long, device=device)
        return Pool(zeros.double() - torch.inf, zeros, zeros.clone())

    def only(self, sentences: Tensor) -> "Pool":
        return Pool(self.scores[sentences], self.lengths[sentences], self.slots[sentences])

    def best(self, count: int) -> "Pool":
        return Pool(self.scores[:, :count], self.lengths[:, :count], self.slots[:, :count])

    def add(self, sentence: Tensor, found: Candidates, ended: Tensor, length: int | Tensor, penalty: Penalty) -> None:
        """Take in the candidates of the first N ranks that ended, and keep the best N."""
        size = self.scores.shape[1]
        ended = ended[:, :size] & (found.totals[:, :size] > -torch.inf)
        scores = (found.totals[:, :size] / _divisor(penalty, length)).masked_fill(~ended, -torch.inf)
        ranks = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        best, kept = torch.cat((self.scores[sentence], scores), 1).topk(size, dim=1)
        self.scores[sentence] = best
        self.lengths[sentence] = torch.cat((self.lengths[sentence], ended * length), 1).gather(1, kept)
        self.slots[sentence] = torch.cat((self.slots[sentence], ranks), 1).gather(1, kept)


@dataclass(frozen=True)
class Ranking:
    """What one step of the search saw and decided, for those who watch it."""

    place: int
    sentence: Tensor  # [A], which of the B each row is
    found: Candidates
    alive: Alive  # those that go on, where their sentence does
    attainable: Tensor  # [A], the best score that anything alive can still reach
    kept: Tensor  # [A, N], the scores of the hypotheses so far


Observer = Callable[[Ranking], None]


def _divisor(penalty: Penalty, length: int | Tensor) -> float | Tensor:
    return penalty(length.double()) if isinstance(length, Tensor) else penalty(float(length))


@dataclass(frozen=True)
class Trail:
    """Every candidate ranked, with the way back; all [T, B, K]."""

    tokens: Tensor
    log_probs: Tensor
    origins: Tensor

    @staticmethod
    def empty(forced: Tensor, candidates: int) -> "Trail":
        tokens = forced.new_zeros(forced.shape[1], forced.shape[0], candidates)
        return Trail(tokens, tokens.float(), tokens.clone())

    def record(self, place: int | Tensor, sentence: Tensor, found: Candidates) -> None:
        count = found.tokens.shape[1]
        self.tokens[place, sentence, :count] = found.tokens
        self.log_probs[place, sentence, :count] = found.log_probs
        self.origins[place, sentence, :count] = found.origins

    def only(self, sentences: Tensor, places: int) -> "Trail":
        return Trail(*(of[:places, sentences] for of in (self.tokens, self.log_probs, self.origins)))

    def follow(self, pool: Pool) -> Paths:
        """The hypotheses of the pool from their last token back to their first [B * N, T].

        Not place by place: every place is reached at once from the last one, by jumps of 1, 2, 4, ... places.
        """
        place = torch.arange(len(self.tokens), device=pool.slots.device)[:, None, None]
        sentence = torch.arange(len(pool.slots), device=pool.slots.device)[:, None]
        far = (pool.lengths - 1 - place).clamp(min=0)  # from an output's last place to this one [T, B, N]
        here, at = place + far, pool.slots.expand(len(place), -1, -1)  # where the jumps have come to
        back, distance = self.origins, 1  # where a candidate stood so many places before
        while distance < len(place):
            jumps = (far & distance) > 0
            at = torch.where(jumps, back[here.clamp(max=len(place) - 1), sentence, at], at)
            here = torch.where(jumps, here - distance, here)
            back = torch.cat((back[:distance], back[:-distance].gather(2, back[distance:])))
            distance *= 2
        tokens, log_probs = (of.gather(2, at).permute(1, 2, 0).flatten(0, 1) for of in (self.tokens, self.log_probs))
        return Paths(tokens, log_probs, pool.lengths.flatten())
