"""Sampling: tokens from the model's distribution, with temperature, top-k and top-p.

Axes: R rows, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from transduce.search.checks import check_sampling
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty
from transduce.search.step import SearchState, Step, forced_tokens, hypotheses
from transduce.search.walk import walk

COLDEST = 1e-30  # greedy already; a log-probability divided by less may overflow float32, and then none is a number


@torch.no_grad()
def sample(
    step: Step,
    state: SearchState,
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
    """`num_samples` outputs per sentence, in the order sampled; scores do not depend on temperature, top-k or top-p.

    The state has one row per sentence. `limits` [B] are the maximum output lengths, counting `</s>`; tokens in `never` are not
    sampled. top_k = 0 and top_p = 1 keep all tokens. The samples depend on the generator, which must be on the device of
    `limits`, and on the batch: in another batch, the same sentence gets other samples. Samples of probability 0, which only a
    prefix can cause, are left out.
    """
    check_sampling(num_samples, temperature, top_k, top_p)
    if len(limits) == 0:
        return []
    forced = forced_tokens(limits, prefix, end).repeat_interleave(num_samples, dim=0)
    sentence = torch.arange(len(limits), device=limits.device).repeat_interleave(num_samples)

    def choose(log_probs: Tensor) -> Tensor:
        return sample_tokens(log_probs, temperature, top_k, top_p, generator)

    state = state.select(sentence) if num_samples > 1 else state
    paths = walk(step, state, start=start, end=end, forced=forced, choose=choose, never=never)
    return hypotheses(paths, len(limits), penalty)


def sample_tokens(log_probs: Tensor, temperature: float, top_k: int, top_p: float, generator: Generator) -> Tensor:
    """Sample a token for each row [R] among those that top_k and top_p keep."""
    temperature = min(max(temperature, COLDEST), 1 / COLDEST)
    if top_k == 0 and top_p == 1:
        return _sample_columns(torch.softmax(log_probs / temperature, dim=1), generator)
    count = min(top_k or log_probs.shape[1], log_probs.shape[1])
    log_probs, tokens = log_probs.topk(count, dim=1)
    probs = torch.softmax(log_probs / temperature, dim=1)
    improbable = probs.cumsum(1) - probs >= top_p
    improbable[:, 0] = False  # always keep one token: a tiny top_p may round to 0, and the difference above it
    probs = probs.masked_fill(improbable, 0)
    return tokens.gather(1, _sample_columns(probs, generator)[:, None]).squeeze(1)


def _sample_columns(weights: Tensor, generator: Generator) -> Tensor:
    """Sample a column of each row [R] with a probability proportional to its weight.

    Inverts the cumulative distribution, which is many times faster than `torch.multinomial` for a large vocabulary.
    """
    cumulative = weights.cumsum(1, dtype=torch.float64)
    total = cumulative[:, -1:]
    threshold = total * torch.rand(total.shape, generator=generator, dtype=total.dtype, device=total.device)
    # A threshold rounded up to the total would point past the last column with any weight.
    threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
