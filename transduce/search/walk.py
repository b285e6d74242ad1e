"""Greedy search and sampling: append one token to each row at each step, until `</s>`.

Axes: R rows, T positions of an output, V vocabulary.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.search.step import FREE, Paths, SearchState, Step, next_scores, top, without

# log-probabilities [R, V] -> the token each row takes [R]
Choose = Callable[[Tensor], Tensor]


def greedy(log_probs: Tensor) -> Tensor:
    """The most probable token of each row."""
    return top(log_probs, 1)[1].squeeze(1)


def walk(
    step: Step, state: SearchState, *, start: int, end: int, forced: Tensor, choose: Choose, never: Sequence[int] = ()
) -> Paths:
    """Take the forced tokens [R, T], and let `choose` pick the others; tokens in `never` have probability 0 there."""
    taken = torch.full_like(forced, end)
    taken_log_probs = torch.zeros_like(forced, dtype=torch.float32)
    row = torch.arange(len(forced), device=forced.device)  # the output row of each unfinished row
    token = torch.full_like(row, start)
    lengths = torch.zeros_like(row)
    for position in range(forced.shape[1]):
        log_probs = next_scores(step, token, state)
        must = forced[row, position]
        token = torch.where(must == FREE, choose(without(log_probs, never)), must)
        taken[row, position] = token
        taken_log_probs[row, position] = log_probs.gather(1, token[:, None]).squeeze(1)
        lengths[row] = torch.where((token == end) & (lengths[row] == 0), position + 1, lengths[row])
        unfinished = (lengths[row] == 0).nonzero().squeeze(1)
        if len(unfinished) == 0:
            break
        # Copying a state takes longer than a few idle rows, so finished rows are removed an eighth of the rows at a time.
        if 8 * len(unfinished) <= 7 * len(row):
            row, token, state = row[unfinished], token[unfinished], state.select(unfinished)
    return Paths(taken, taken_log_probs, lengths)
