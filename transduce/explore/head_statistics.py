"""Statistics of an attention head: how widely it attends, how far away, and to which tokens.

Knows weights, and which tokens are punctuation or start and end tokens; no model and no text.

Axes: H heads, Q query positions, K key positions.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kinds:
    """The kinds of the key tokens, each [K]."""

    punctuation: Tensor
    marks: Tensor  # the start token and `</s>`, on which heads often rest their attention

    @staticmethod
    def of(tokens: Sequence[str]) -> "Kinds":
        return Kinds(
            torch.tensor([is_punctuation(token) for token in tokens]),
            torch.tensor([token in ("<pad>", "</s>") for token in tokens]),
        )


def is_punctuation(token: str) -> bool:
    """Whether a token consists of punctuation only, after sentencepiece's mark for a space."""
    text = token.removeprefix("▁")
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


def head_statistics(weights: Tensor, kinds: Kinds) -> list[dict[str, float]]:
    """The statistics of each head of a layer, `weights` [H, Q, K]; shares are of its total attention, from 0 to 1."""
    weights = weights.double()
    offset = _offsets(weights)
    figures = {
        "entropy": -(weights * weights.clamp(min=1e-12).log2())
        .sum(-1)
        .mean(-1),  # in bits: 3 bits are like even attention to 8 tokens
        "distance": (weights * offset.abs()).sum(-1).mean(-1),  # in tokens
        "previous": _share(weights, offset == -1),
        "same": _share(weights, offset == 0),
        "next": _share(weights, offset == 1),
        "punctuation": _share(weights, kinds.punctuation),
        "marks": _share(weights, kinds.marks),
    }
    return [{name: round(value[head].item(), 4) for name, value in figures.items()} for head in range(len(weights))]


def _offsets(weights: Tensor) -> Tensor:
    """The position of each key relative to the query [Q, K]; negative if it comes before the query."""
    return torch.arange(weights.shape[2]) - torch.arange(weights.shape[1])[:, None]


def _share(weights: Tensor, where: Tensor) -> Tensor:
    return (weights * where).sum(-1).mean(-1)
