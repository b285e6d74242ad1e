"""What all searches share: the step function, forced tokens, and the hypotheses.

Knows nothing of models: a step is any function from the last tokens and a state to logits.

Axes: B sentences, T positions of an output, R rows of a step, V vocabulary, K candidates of a row.
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

FREE = -1  # in a table of forced tokens: any token is allowed
GROUP = 64  # columns: `top` compares the maxima of groups first


class SearchState(Protocol):
    """What a step carries from token to token, one row per output."""

    def select(self, rows: Tensor, /) -> Self:
        """The state whose row i is row `rows[i]` of this one; rows may be repeated or left out."""
        ...


# (last tokens [R], state) -> logits [R, V]. The step updates the state.
Step = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class ScoreStep:
    """A step that returns scores instead of logits: they are added up as they are, and are never above 0."""

    step: Step

    def __call__(self, tokens: Tensor, state: Any) -> Tensor:
        return self.step(tokens, state)


@dataclass(frozen=True)
class Paths:
    """Outputs as tensors, with the rows of a sentence next to each other; ignore entries beyond the length of a row."""

    tokens: Tensor  # [R, T]
    log_probs: Tensor  # [R, T], the model's log-probability of each token, however it was chosen
    lengths: Tensor  # [R], counting `</s>`; 0 means no output


def forced_tokens(limits: Tensor, prefix: Sequence[Sequence[int]] | None, end: int) -> Tensor:
    """The token that each position must take, or FREE [B, T]: the prefix, and `</s>` at the limit.

    Differs from the paper: an output that reaches the limit ends in `</s>` instead of being cut off, so that every
    hypothesis is complete and has a probability.
    """
    prefix = prefix or [[] for _ in limits]
    _check_prefixes(limits.tolist(), prefix, end)
    forced = torch.full((len(limits), int(limits.max())), FREE, dtype=torch.long)
    for row, tokens in enumerate(prefix):
        if tokens:
            forced[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    forced = forced.to(limits.device)
    return forced.scatter_(1, limits[:, None] - 1, end)


def _check_prefixes(limits: list[int], prefix: Sequence[Sequence[int]], end: int) -> None:
    if len(prefix) != len(limits):
        raise SettingError(f"{len(prefix)} prefixes for {len(limits)} sentences: give one prefix per sentence")
    for sentence, (limit, tokens) in enumerate(zip(limits, prefix, strict=True)):
        if limit < 1:
            raise SettingError(f"sentence {sentence}: the length limit is {limit}, but must be at least 1, for </s>")
        if len(tokens) >= limit:
            raise SettingError(
                f"sentence {sentence}: a prefix of {len(tokens)} tokens and </s> exceed the length limit of {limit}"
            )
        if end in tokens or min(tokens, default=0) < 0:
            raise SettingError(f"sentence {sentence}: the prefix must contain only token ids other than </s>")


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax in float32, whatever the precision of the step; never above 0, which the stopping rule relies on."""
    return torch.log_softmax(logits.float(), dim=-1).clamp_(max=0)


def next_scores(step: Step, tokens: Tensor, state: Any) -> Tensor:
    """The score of each next token [R, V], which a search adds up: its log-probability, or what a `ScoreStep` says."""
    found = step(tokens, state)
    return found.float().clamp(max=0) if isinstance(step, ScoreStep) else log_probabilities(found)


def without(log_probs: Tensor, never: Sequence[int]) -> Tensor:
    """Exclude these tokens; the others keep their log-probabilities, so that scores stay those of the model."""
    if not never:
        return log_probs
    return log_probs.index_fill(1, torch.tensor(never, device=log_probs.device), -torch.inf)


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their columns [R, K], largest first.

    The same as `torch.topk`, but three to four times faster on CPUs: the largest values are in the groups of columns
    with the largest maxima, and unlike a partial sort, a maximum over columns is vectorised.
    """
    whole = values.shape[1] // GROUP
    if whole <= count:
        return values.topk(count, dim=1)
    maxima = values[:, : whole * GROUP].unflatten(1, (whole, GROUP)).amax(2)
    column = torch.arange(values.shape[1], device=values.device)
    inside = maxima.topk(count, dim=1).indices[:, :, None] * GROUP + column[:GROUP]
    columns = torch.cat((inside.flatten(1), column[whole * GROUP :].expand(len(values), -1)), dim=1)
    best, index = values.gather(1, columns).topk(count, dim=1)
    return best, columns.gather(1, index)


def hypotheses(paths: Paths, sentences: int, penalty: Penalty) -> list[list[Hypothesis]]:
    """The paths of each sentence in the same order, without those of probability 0."""
    lengths = paths.lengths.tolist()
    longest = max(lengths, default=0)
    rows = zip(paths.tokens[:, :longest].tolist(), paths.log_probs[:, :longest].tolist(), lengths, strict=True)
    found = [_hypothesis(tokens[:length], log_probs[:length], penalty) for tokens, log_probs, length in rows]
    each = len(found) // sentences
    return [
        [one for one in found[first : first + each] if one.log_probability > -torch.inf]
        for first in range(0, len(found), each)
    ]


def unscored_hypotheses(tokens: Tensor, lengths: Tensor, sentences: int) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence without scores, which are NaN, and with tokens as arrays, which are faster to make."""
    bounds = lengths.tolist()
    rows = zip(tokens[:, : max(bounds, default=0)].numpy().copy(), bounds, strict=True)
    found = [[Hypothesis(row[: length - 1], math.nan, math.nan, [])] if length else [] for row, length in rows]
    each = len(found) // sentences
    return found if each == 1 else [list(chain(*found[first : first + each])) for first in range(0, len(found), each)]


def _hypothesis(tokens: list[int], log_probs: list[float], penalty: Penalty) -> Hypothesis:
    """The output with these tokens, `</s>` last; no tokens means that there is no output."""
    if not tokens:
        return Hypothesis([], -torch.inf, -torch.inf, [])
    total = sum(log_probs)
    return Hypothesis(tokens[:-1], total / penalty(float(len(tokens))), total, log_probs)
