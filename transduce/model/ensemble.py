"""Ensembles: several models whose predicted probabilities are averaged.

An ensemble has the methods of `Model` that a search calls. Its models must share both vocabularies; their sizes may differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.model import Model, State
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens


@dataclass
class EnsembleState:
    """The decoding state of each model."""

    states: list[State]

    def select(self, rows: Int[Tensor, "N"]) -> "EnsembleState":
        self.states = [state.select(rows) for state in self.states]
        return self


@dataclass(frozen=True)
class Ensemble:
    """The models; where only one can be inspected, such as for attention maps, it is the first."""

    models: Sequence[Model]

    @property
    def never(self) -> tuple[int, ...]:
        """Columns of the result of `step` that a search must not choose."""
        return tuple(sorted({column for model in self.models for column in model.never}))

    def encode(self, source: Source) -> list[Any]:
        return [model.encode(source) for model in self.models]

    def begin(self, memories: list[Any]) -> EnsembleState:
        return EnsembleState([model.begin(memory) for model, memory in zip(self.models, memories, strict=True)])

    def step(self, tokens: Int[Tensor, "R"], state: EnsembleState) -> Float[Tensor, "R V"]:
        """Log-probabilities of the next token, which can be used as logits: normalising them again changes nothing."""
        return _mean([model.step(tokens, own) for model, own in zip(self.models, state.states, strict=True)])

    def predict(self, target: Tokens, memories: list[Any]) -> Float[Tensor, "R W V"]:
        """The same for all positions at once."""
        pairs = zip(self.models, memories, strict=True)
        return _mean([model.project(model.decode(target, memory)) for model, memory in pairs])


def _mean(logits: list[Tensor]) -> Tensor:
    widest = max(one.shape[-1] for one in logits)
    each = [_widened(one.float().log_softmax(-1), widest) for one in logits]
    return each[0] if len(each) == 1 else torch.stack(each).logsumexp(0) - math.log(len(each))


def _widened(log_probs: Tensor, columns: int) -> Tensor:
    """Only speech models that search with CTC have a column for `<pad>`; the others never predict it."""
    missing = columns - log_probs.shape[-1]
    return pad(log_probs, (0, missing), value=-torch.inf) if missing else log_probs
