"""Greedy search and sampling: append one token to each row at each step, until `</s>`.

Axes: R rows, T places of an output, V vocabulary.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transduce.search.step import FREE, Paths, State, Step, log_probabilities, top, without

# log-probabilities [R, V] -> the token each row takes [R]
Choose = Callable[[Tensor], Tensor]


def greedy(log_probs: Tensor) -> Tensor:
    """The most probable token of each row."""
    return top(log_probs, 1)[1].squeeze(1)


def walk(
    step: Step, state: State, *, start: int, end: int, forced: Tensor, choose: Choose, never: Sequence[int] = ()
) -> Paths:
    """Follow `choose` wherever `forced` [R, T] leaves a place free; it is not offered the tokens of `never`."""
    taken = torch.full_like(forced, end)
    taken_log_probs = torch.zeros_like(forced, dtype=torch.float32)
    row = torch.arange(len(forced), device=forced.device)  # where each row still walking is written
    token = torch.full_like(row, start)
    lengths = torch.zeros_like(row)
    for place in range(forced.shape[1]):
        log_probs = log_probabilities(step(token, state))
        must = forced[row, place]
        token = torch.where(must == FREE, choose(without(log_probs, never)), must)
        taken[row, place] = token
        taken_log_probs[row, place] = log_probs.gather(1, token[:, None]).squeeze(1)
        lengths[row] = torch.where((token == end) & (lengths[row] == 0), place + 1, lengths[row])
        walking = (lengths[row] == 0).nonzero().squeeze(1)
        if len(walking) == 0:
            break
        # Copying a state costs more than a few idle rows, so rows leave when an eighth of them is done.
        if 8 * len(walking) <= 7 * len(row):
            row, token, state = row[walking], token[walking], state.select(walking)
    return Paths(taken, taken_log_probs, lengths)
