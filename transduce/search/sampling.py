"""Sampling: draw tokens from the model's distribution, with temperature, top-k and top-p.

Axes: R rows, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from transduce.search.asked import check_sampling
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty
from transduce.search.step import State, Step, forced_tokens, hypotheses
from transduce.search.walk import walk


@torch.no_grad()
def sample(
    step: Step,
    state: State,
    *,
    start: int,
    end: int,
    limits: Tensor,
    penalty: Penalty,
    generator: Generator,
    num_samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    prefix: Sequence[Sequence[int]] | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """`num_samples` outputs per sentence in the order drawn, scored by the model as it is.

    The state has one row per sentence. `limits` [B] are the longest outputs, counting `</s>`; tokens of `never` are
    not drawn. top_k = 0 and
    top_p = 1 cut nothing off. The draws depend on the generator, which lives on the device of `limits`, and on
    the batch: the same sentences in another batch draw others. Draws of probability 0 (by their prefix) are left out.
    """
    check_sampling(num_samples, temperature, top_k, top_p)
    if len(limits) == 0:
        return []
    forced = forced_tokens(limits, prefix, end).repeat_interleave(num_samples, dim=0)
    sentence = torch.arange(len(limits), device=limits.device).repeat_interleave(num_samples)

    def choose(log_probs: Tensor) -> Tensor:
        return draw(log_probs, temperature, top_k, top_p, generator)

    state = state.select(sentence) if num_samples > 1 else state
    paths = walk(step, state, start=start, end=end, forced=forced, choose=choose, never=never)
    return hypotheses(paths, len(limits), penalty)


def draw(log_probs: Tensor, temperature: float, top_k: int, top_p: float, generator: Generator) -> Tensor:
    """A token for each row [R], from the most probable ones that top_k and top_p leave."""
    if top_k == 0 and top_p == 1:
        return _draw_column(torch.softmax(log_probs / temperature, dim=1), generator)
    count = min(top_k or log_probs.shape[1], log_probs.shape[1])
    log_probs, tokens = log_probs.topk(count, dim=1)
    probs = torch.softmax(log_probs / temperature, dim=1)
    more_probable = probs.cumsum(1) - probs
    more_probable[:, 0] = 0  # the subtraction may round above a tiny top_p, and one token always stays
    probs = probs.masked_fill(more_probable >= top_p, 0)
    return tokens.gather(1, _draw_column(probs, generator)[:, None]).squeeze(1)


def _draw_column(weights: Tensor, generator: Generator) -> Tensor:
    """A column of each row [R] with a chance proportional to its weight.

    By the inverse of the cumulative distribution: many times faster than `torch.multinomial` at a vocabulary's width.
    """
    cumulative = weights.cumsum(1, dtype=torch.float64)
    total = cumulative[:, -1:]
    threshold = total * torch.rand(total.shape, generator=generator, dtype=total.dtype, device=total.device)
    # Rounding up to the total itself would point past the last column that has any weight.
    threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
