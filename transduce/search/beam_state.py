"""The state of beam search: the candidates of a step, the beams alive, back pointers, and finished hypotheses.

A candidate is known by its rank: its index among the candidates of its step, the most probable first.

Axes: B sentences (A of them unfinished), W beams alive, K candidates of a sentence, N hypotheses kept,
T positions of an output.
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

    totals: Tensor  # log-probability of the output so far, in float64 to sum precisely
    log_probs: Tensor  # of its last token
    tokens: Tensor  # its last token
    beams: Tensor  # the beam it continues
    origins: Tensor  # the rank of the beam it continues among the candidates of the previous step


@dataclass(frozen=True)
class Alive:
    """The beams that continue, most probable first; all fields but `sentence` are [A, W]."""

    sentence: Tensor  # [A], the index of the sentence in the batch
    tokens: Tensor  # the last token of each
    totals: Tensor  # log-probabilities so far
    ranks: Tensor  # of each among the candidates of the last step

    @staticmethod
    def at_start(sentences: int, start: int, device: torch.device) -> "Alive":
        zeros = torch.zeros(sentences, 1, dtype=torch.long, device=device)
        return Alive(torch.arange(sentences, device=device), zeros + start, zeros.double(), zeros)

    def best_continuations(self, values: Tensor, tokens: Tensor, count: int) -> Candidates:
        """The `count` most probable of all continuations: `tokens` [A * W, any] with these log-probabilities."""
        sentences = len(self.totals)
        sums = (self.totals.flatten()[:, None] + values).view(sentences, -1)
        totals, index = sums.topk(min(count, sums.shape[1]), dim=1)
        beams = index // values.shape[1]
        return Candidates(
            totals=totals,
            log_probs=values.view(sentences, -1).gather(1, index),
            tokens=tokens.view(sentences, -1).gather(1, index),
            beams=beams,
            origins=self.ranks.gather(1, beams),
        )

    def continue_with(self, found: Candidates, ended: Tensor, beam: int) -> "Alive":
        """The best candidates that have not ended."""
        count = min(beam, found.tokens.shape[1] - self.tokens.shape[1])  # at most one candidate of each beam has ended
        ranks = ended.byte().sort(dim=1, stable=True).indices[:, :count]
        return Alive(self.sentence, found.tokens.gather(1, ranks), found.totals.gather(1, ranks), ranks)

    def only(self, rows: Tensor) -> "Alive":
        return Alive(self.sentence[rows], self.tokens[rows], self.totals[rows], self.ranks[rows])


@dataclass(frozen=True)
class FinishedHypotheses:
    """The best hypotheses of each sentence, best first; all [B, N]. Unused entries have length 0."""

    scores: Tensor
    lengths: Tensor  # counting `</s>`
    ranks: Tensor  # of its `</s>` among the candidates of its last step

    @staticmethod
    def empty(sentences: int, size: int, device: torch.device) -> "FinishedHypotheses":
        zeros = torch.zeros(sentences, size, dtype=torch.long, device=device)
        return FinishedHypotheses(zeros.double() - torch.inf, zeros, zeros.clone())

    def only(self, sentences: Tensor) -> "FinishedHypotheses":
        return FinishedHypotheses(self.scores[sentences], self.lengths[sentences], self.ranks[sentences])

    def best(self, count: int) -> "FinishedHypotheses":
        return FinishedHypotheses(self.scores[:, :count], self.lengths[:, :count], self.ranks[:, :count])

    def add(self, sentence: Tensor, found: Candidates, ended: Tensor, length: int | Tensor, penalty: Penalty) -> None:
        """Add the finished candidates among the first N ranks, and keep the best N."""
        size = self.scores.shape[1]
        ended = ended[:, :size] & (found.totals[:, :size] > -torch.inf)
        scores = (found.totals[:, :size] / _divisor(penalty, length)).masked_fill(~ended, -torch.inf)
        ranks = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        best, kept = torch.cat((self.scores[sentence], scores), 1).topk(size, dim=1)
        self.scores[sentence] = best
        self.lengths[sentence] = torch.cat((self.lengths[sentence], ended * length), 1).gather(1, kept)
        self.ranks[sentence] = torch.cat((self.ranks[sentence], ranks), 1).gather(1, kept)


@dataclass(frozen=True)
class Ranking:
    """What one step of the search considered and decided, for an observer."""

    position: int
    sentence: Tensor  # [A], the index of each row's sentence in the batch
    found: Candidates
    alive: Alive  # the beams that continue, unless their sentence is finished
    attainable: Tensor  # [A], the best score that a beam alive can still reach
    kept: Tensor  # [A, N], scores of the hypotheses so far


Observer = Callable[[Ranking], None]


def _divisor(penalty: Penalty, length: int | Tensor) -> float | Tensor:
    return penalty(length.double()) if isinstance(length, Tensor) else penalty(float(length))


@dataclass(frozen=True)
class BackPointers:
    """The candidates of all steps, each with the rank of the one it continues (`origins`); all [T, B, K]."""

    tokens: Tensor
    log_probs: Tensor
    origins: Tensor

    @staticmethod
    def empty(forced: Tensor, candidates: int) -> "BackPointers":
        tokens = forced.new_zeros(forced.shape[1], forced.shape[0], candidates)
        return BackPointers(tokens, tokens.float(), tokens.clone())

    def record(self, position: int | Tensor, sentence: Tensor, found: Candidates) -> None:
        count = found.tokens.shape[1]
        self.tokens[position, sentence, :count] = found.tokens
        self.log_probs[position, sentence, :count] = found.log_probs
        self.origins[position, sentence, :count] = found.origins

    def only(self, sentences: Tensor, positions: int) -> "BackPointers":
        return BackPointers(*(of[:positions, sentences] for of in (self.tokens, self.log_probs, self.origins)))

    def follow(self, hypotheses: FinishedHypotheses) -> Paths:
        """The outputs of these hypotheses, followed back from their last token to their first [B * N, T].

        All positions are found in parallel, by jumps of 1, 2, 4, ... positions back from the last one.
        """
        position = torch.arange(len(self.tokens), device=hypotheses.ranks.device)[:, None, None]
        sentence = torch.arange(len(hypotheses.ranks), device=hypotheses.ranks.device)[:, None]
        # How far the last position of an output is from this one [T, B, N], and the position and rank reached so far.
        far = (hypotheses.lengths - 1 - position).clamp(min=0)
        here, at = position + far, hypotheses.ranks.expand(len(position), -1, -1)
        back, distance = self.origins, 1  # the rank of a candidate's ancestor `distance` positions earlier
        while distance < len(position):
            jumps = (far & distance) > 0
            at = torch.where(jumps, back[here.clamp(max=len(position) - 1), sentence, at], at)
            here = torch.where(jumps, here - distance, here)
            back = torch.cat((back[:distance], back[:-distance].gather(2, back[distance:])))
            distance *= 2
        tokens, log_probs = (of.gather(2, at).permute(1, 2, 0).flatten(0, 1) for of in (self.tokens, self.log_probs))
        return Paths(tokens, log_probs, hypotheses.lengths.flatten())
