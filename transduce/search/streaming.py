"""Continuing texts token by token, for language models: each step yields the tokens it chose.

Knows nothing of models or contexts: a step is any function from the last tokens to logits.

Axes: R rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from transduce.search.step import log_probabilities, without
from transduce.search.walk import Choose

NextLogits = Callable[[Tensor], Tensor]  # the newest token of each row [R] -> logits [R, V]


@torch.no_grad()
def continuations(
    step: NextLogits, logits: Tensor, choose: Choose, most: int, never: Sequence[int] = ()
) -> Iterator[Tensor]:
    """Yield the next token of each row [R], `most` times; `logits` are those after the given beginning."""
    for count in range(1, most + 1):
        tokens = choose(without(log_probabilities(logits), never))
        yield tokens
        if count < most:
            logits = step(tokens)
