"""Embeddings (section 3.4): their initial values, which of them are shared, and the factor sqrt(d_model).

The last id of a vocabulary is `<pad>`, whose embedding is zero. Knows nothing of layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from transduce.model.shapes import Float, Int


def make_embedding(size: int, width: int, std: float | None = None) -> nn.Embedding:
    """Embeddings from N(0, 1/width), so that vectors times sqrt(width) and tied logits have unit variance; `<pad>` is zero.

    It stays zero: `padding_idx` keeps its gradient at zero, and `Model.project` does not use its row.
    """
    table = nn.Embedding(size, width, padding_idx=size - 1)
    nn.init.normal_(table.weight, std=width**-0.5 if std is None else std)
    with torch.no_grad():
        table.weight[size - 1].zero_()
    return table


def make_embeddings(
    source_size: int, target_size: int, width: int, tie: str, std: float | None = None
) -> tuple[nn.Embedding, nn.Embedding, nn.Embedding]:
    """The embeddings of sources, of targets and of outputs, all of one width, shared by `model.tie`."""
    return tied([make_embedding(size, width, std) for size in (source_size, target_size, target_size)], tie)


def tied(tables: Sequence[nn.Embedding], tie: str) -> tuple[nn.Embedding, nn.Embedding, nn.Embedding]:
    """The embeddings of sources, of targets and of outputs, some of them the same ones by `model.tie`."""
    source, target, output = tables
    return target if tie in ("all", "inputs") else source, target, target if tie in ("all", "target") else output


def embed(table: nn.Embedding, ids: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions D"]:
    """The embeddings of these ids, times sqrt(d_model)."""
    return embedding(ids, table.weight, table.padding_idx) * table.embedding_dim**0.5
