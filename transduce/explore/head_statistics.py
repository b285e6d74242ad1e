"""Statistics of an attention head: how widely it attends, how far away, and to which tokens.

Sees weights and which of the tokens are punctuation or marks; no model and no text.

Axes: H heads, Q places that ask, K places that are asked.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kinds:
    """What the tokens that are asked are, each [K]."""

    punctuation: Tensor
    marks: Tensor  # the start, and `</s>`: where heads rest that find nothing to do

    @staticmethod
    def of(tokens: Sequence[str]) -> "Kinds":
        return Kinds(
            torch.tensor([is_punctuation(token) for token in tokens]),
            torch.tensor([token in ("<pad>", "</s>") for token in tokens]),
        )


def is_punctuation(token: str) -> bool:
    """Whether there is nothing but punctuation behind sentencepiece's mark of a space."""
    text = token.removeprefix("▁")
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


def head_statistics(weights: Tensor, kinds: Kinds) -> list[dict[str, float]]:
    """The numbers of each head of a layer, `weights` [H, Q, K]; shares are of all its attention, from 0 to 1."""
    weights = weights.double()
    offset = _offsets(weights)
    figures = {
        "entropy": -(weights * weights.clamp(min=1e-12).log2()).sum(-1).mean(-1),  # bits: 3 is as if among 8 tokens
        "distance": (weights * offset.abs()).sum(-1).mean(-1),  # tokens
        "previous": _share(weights, offset == -1),
        "same": _share(weights, offset == 0),
        "next": _share(weights, offset == 1),
        "punctuation": _share(weights, kinds.punctuation),
        "marks": _share(weights, kinds.marks),
    }
    return [{name: round(value[head].item(), 4) for name, value in figures.items()} for head in range(len(weights))]


def _offsets(weights: Tensor) -> Tensor:
    """How far each place that is asked lies behind the one that asks [Q, K]; negative: before it."""
    return torch.arange(weights.shape[2]) - torch.arange(weights.shape[1])[:, None]


def _share(weights: Tensor, where: Tensor) -> Tensor:
    return (weights * where).sum(-1).mean(-1)
