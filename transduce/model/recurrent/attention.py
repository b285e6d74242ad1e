"""Attention of a recurrent decoder to its source: additive (Bahdanau et al. 2015), normalised additive, or by dot products.

Axes: R rows, W target positions, S source positions, D width of the queries, M width of the source's states, A width in
which they are compared.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from transduce.model.additive import additive_scores
from transduce.model.attention import Tap
from transduce.model.shapes import Bool, Float, Int

Kind = Literal["additive", "normalised", "dot"]


@dataclass(frozen=True)
class AttendedSource:
    """The states of the source with their keys, and which of them are real."""

    keys: Float[Tensor, "R S A"]
    values: Float[Tensor, "R S M"]
    keep: Bool[Tensor, "R S"]

    def select(self, rows: Int[Tensor, "N"]) -> "AttendedSource":
        return AttendedSource(*(tensor.index_select(0, rows) for tensor in (self.keys, self.values, self.keep)))


class SourceAttention(nn.Module):
    """A softmax over how well a query fits each state of the source, and the mean of these states under it."""

    def __init__(self, kind: Kind, query_width: int, source_width: int, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.tap: Tap | None = None
        self.key = nn.Linear(source_width, width, bias=False)
        if kind != "dot":
            self.query = nn.Linear(query_width, width, bias=False)
            self.vector = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))
        if kind == "normalised":
            self.scale = nn.Parameter(torch.tensor(width**-0.5))
            self.bias = nn.Parameter(torch.zeros(width))

    def source(self, hidden: Float[Tensor, "R S M"], keep: Bool[Tensor, "R S"]) -> AttendedSource:
        """What queries are compared with, computed once for all of them."""
        return AttendedSource(self.key(hidden), hidden, keep)

    def forward(self, queries: Float[Tensor, "R W D"], source: AttendedSource) -> Float[Tensor, "R W M"]:
        """The context of each query."""
        energies = self._energies(queries, source.keys).float()
        weights = energies.masked_fill(~source.keep[:, None], -torch.inf).softmax(-1)
        if self.tap is not None:
            self.tap(weights[:, None])
        return weights.to(source.values.dtype) @ source.values

    def _energies(self, queries: Tensor, keys: Float[Tensor, "R S A"]) -> Float[Tensor, "R W S"]:
        if self.kind == "dot":
            return queries @ keys.transpose(1, 2) * keys.shape[-1] ** -0.5
        vector = self.vector
        queries = self.query(queries)
        if self.kind == "normalised":  # weight normalisation (Salimans and Kingma 2016), and a bias
            vector, queries = self.scale * vector / vector.norm(), queries + self.bias
        return additive_scores(queries[:, None], keys[:, None], vector[None, :, None])[:, 0]
