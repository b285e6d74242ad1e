"""Shallow fusion: a second step function, usually that of a language model, takes part in every step of a search.

Knows nothing of models: a fused step is made of two step functions, and its state selects the rows of both.

Axes: R rows of a step, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor

from transduce.search.step import ScoreStep, SearchState, Step, next_scores


@dataclass
class FusedState:
    """The states of both steps, with the same rows."""

    first: SearchState
    second: SearchState

    def select(self, rows: Tensor) -> "FusedState":
        return FusedState(self.first.select(rows), self.second.select(rows))


def fuse(first: Step, second: Step, weight: float) -> ScoreStep:
    """A step over `FusedState` whose scores are log p of the first step + weight * log p of the second [R, V].

    The scores are not normalised, so that the score of an output is the weighted sum of what both steps give to it. The first
    step may have further columns, which keep their scores.
    """

    def step(tokens: Tensor, state: FusedState) -> Tensor:
        scores = next_scores(first, tokens, state.first)
        of_second = next_scores(second, tokens, state.second)
        scores[:, : of_second.shape[1]] += weight * of_second
        return scores

    return ScoreStep(step)
