"""What all searches share: the step function, forced tokens, and the hypotheses.

Knows no model: a step is any function from the last tokens and a state to logits.
Axes: B sentences, T places of an output, R rows of a step, V vocabulary, K candidates of a row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from transduce.errors import SettingError
from transduce.search.hypothesis import Hypothesis
from transduce.search.penalty import Penalty

FREE = -1  # in a table of forced tokens: any token may stand here
GROUP = 64  # columns whose maximum `top` looks at before it looks at each


class State(Protocol):
    """What a step carries from token to token, one row per sequence."""

    def select(self, rows: Tensor, /) -> Self:
        """The state whose row i is this one's row `rows[i]`; rows may repeat or be left out."""
        ...


# (last tokens [R], state) -> logits [R, V]. The step itself brings the state up to date.
Step = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Paths:
    """Outputs as tensors, the rows of a sentence together; what stands beyond a row's length means nothing."""

    tokens: Tensor  # [R, T]
    log_probs: Tensor  # [R, T], the model's own of each token, whatever chose it
    lengths: Tensor  # [R], counting `</s>`; 0: no output


def forced_tokens(limits: Tensor, prefix: Sequence[Sequence[int]] | None, end: int) -> Tensor:
    """The token each place must take, or FREE [B, T]: the prefix, and `</s>` at the limit.

    Differs from the paper: an output that reaches the limit is ended by `</s>` rather than broken off, so that every
    hypothesis is a whole one with a probability.
    """
    prefix = prefix or [[] for _ in limits]
    _check_places(limits.tolist(), prefix, end)
    forced = torch.full((len(limits), int(limits.max())), FREE, dtype=torch.long)
    for row, tokens in enumerate(prefix):
        if tokens:
            forced[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    forced = forced.to(limits.device)
    return forced.scatter_(1, limits[:, None] - 1, end)


def _check_places(limits: list[int], prefix: Sequence[Sequence[int]], end: int) -> None:
    if len(prefix) != len(limits):
        raise SettingError(f"{len(prefix)} prefixes for {len(limits)} sentences: give one each")
    for sentence, (limit, tokens) in enumerate(zip(limits, prefix, strict=True)):
        if limit < 1:
            raise SettingError(f"sentence {sentence}: the length limit is {limit}: must be at least 1, for </s>")
        if len(tokens) >= limit:
            raise SettingError(
                f"sentence {sentence}: a prefix of {len(tokens)} tokens and </s> is over the length limit of {limit}"
            )
        if end in tokens or min(tokens, default=0) < 0:
            raise SettingError(f"sentence {sentence}: the prefix must hold token ids other than </s>")


def log_probabilities(logits: Tensor) -> Tensor:
    """Normalised in float32 whatever the step computed in, and never above 0: the stopping rule rests on it."""
    return torch.log_softmax(logits.float(), dim=-1).clamp_(max=0)


def without(log_probs: Tensor, never: Sequence[int]) -> Tensor:
    """The log-probabilities with these tokens ruled out; the others keep theirs, so that scores stay the model's."""
    if not never:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(never, device=log_probs.device), -torch.inf)


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their columns [R, K], largest first.

    The same as `torch.topk`, three to four times faster on CPUs: the largest values lie in the groups of columns
    with the largest maxima, and a maximum over columns is vectorised where a partial sort is not.
    """
    whole = values.shape[1] // GROUP
    if whole <= count:
        return values.topk(count, dim=1)
    maxima = values[:, : whole * GROUP].unflatten(1, (whole, GROUP)).amax(2)
    column = torch.arange(values.shape[1], device=values.device)
    inside = maxima.topk(count, dim=1).indices[:, :, None] * GROUP + column[:GROUP]
    columns = torch.cat((inside.flatten(1), column[whole * GROUP :].expand(len(values), -1)), dim=1)
    best, place = values.gather(1, columns).topk(count, dim=1)
    return best, columns.gather(1, place)


def hypotheses(paths: Paths, sentences: int, penalty: Penalty) -> list[list[Hypothesis]]:
    """The paths of each sentence in their order, without those of probability 0."""
    lengths = paths.lengths.tolist()
    longest = max(lengths, default=0)
    rows = zip(paths.tokens[:, :longest].tolist(), paths.log_probs[:, :longest].tolist(), lengths, strict=True)
    found = [_hypothesis(tokens[:length], log_probs[:length], penalty) for tokens, log_probs, length in rows]
    each = len(found) // sentences
    return [
        [one for one in found[first : first + each] if one.log_probability > -torch.inf]
        for first in range(0, len(found), each)
    ]


def outputs(tokens: Tensor, lengths: Tensor, sentences: int) -> list[list[Hypothesis]]:
    """The same for those who want no figures: these are not a number, and tokens are arrays, which are made faster."""
    bounds = lengths.tolist()
    rows = zip(tokens[:, : max(bounds, default=0)].numpy().copy(), bounds, strict=True)
    found = [[Hypothesis(row[: length - 1], math.nan, math.nan, [])] if length else [] for row, length in rows]
    each = len(found) // sentences
    return found if each == 1 else [list(chain(*found[first : first + each])) for first in range(0, len(found), each)]


def _hypothesis(tokens: list[int], log_probs: list[float], penalty: Penalty) -> Hypothesis:
    """The output with these tokens, `</s>` last; an empty row stands for none at all."""
    if not tokens:
        return Hypothesis([], -torch.inf, -torch.inf, [])
    total = sum(log_probs)
    return Hypothesis(tokens[:-1], total / penalty(float(len(tokens))), total, log_probs)
