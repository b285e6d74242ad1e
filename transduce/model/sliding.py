"""Texts of any length with a decoder of limited context: whenever the context is full, its older half is dropped.

Works on ids; knows nothing of text, and nothing of how the next token is chosen.

Axes: R rows, W positions, V classes (all ids but `<pad>`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.model.decoder import Decoder, TextState
from transduce.model.shapes import Float, Int


@dataclass
class SlidingState:
    """Texts in progress, one per row, with the tokens that the next one is predicted from."""

    text: TextState
    tokens: Int[Tensor, "R W"] | None = None

    def select(self, rows: Int[Tensor, "N"]) -> "SlidingState":
        """Keep these rows in this order."""
        self.text.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.index_select(0, rows)
        return self


@dataclass(frozen=True)
class SlidingDecoder:
    """A decoder whose texts may be longer than its context. A search begins them with the token `start`."""

    model: Decoder
    start: int = 0

    def begin(self) -> SlidingState:
        """The state before the first token."""
        return SlidingState(self.model.begin(None))

    def step(self, tokens: Int[Tensor, "R"], state: SlidingState) -> Float[Tensor, "R V"]:
        """Logits of the next token of each row, given its newest one; at the beginning that is `start`, whatever is given."""
        newest = torch.full_like(tokens, self.start) if state.tokens is None else tokens
        return self.extend(newest[:, None], state)

    def extend(self, tokens: Int[Tensor, "R W"], state: SlidingState) -> Float[Tensor, "R V"]:
        """Logits after further tokens of each row: several at the beginning, and then one at a time."""
        context = self.model.config.context
        seen = tokens if state.tokens is None else torch.cat([state.tokens, tokens], dim=1)
        if seen.shape[1] > context:
            seen = seen[:, -(context if state.tokens is None else max(1, context // 2)) :]
            tokens, state.text = seen, self.model.begin(None)
        state.tokens = seen
        return self.model.project(self.model.extend(tokens, state.text)[:, -1])
