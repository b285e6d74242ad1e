"""The paper's decoder without an encoder: a language model, which predicts each token of a text from those before it.

Each layer is masked self-attention and feed-forward. Differs from the paper: without a source there is no attention to one.
The embedding of `<pad>`, the start of a document, is zero, as in the Transformer. Works on ids; knows nothing of text.

Axes: R rows, W positions, D d_model, V classes (all ids but `<pad>`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.config import DecoderConfig
from transduce.errors import DataError
from transduce.model.attention import Cache, MultiHeadAttention
from transduce.model.cost import (
    OPERATIONS_PER_WEIGHT,
    attention_weights,
    feed_forward_weights,
    products_per_key,
    stack_activations,
)
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embedding
from transduce.model.layers import EncoderLayer, layer_matrices, make_norm, normalise
from transduce.model.model import Matrices, Model
from transduce.model.positions import Positions, tokens_beyond
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Sequences, Source, Tokens, keep_earlier_of


@dataclass
class TextState:
    """Texts in progress, one per row and all of the same length: what `step` reads and updates."""

    caches: list[Cache]
    length: int = 0

    def select(self, rows: Int[Tensor, "N"]) -> "TextState":
        """Keep these rows in this order."""
        for cache in self.caches:
            cache.select(rows)
        return self


class Decoder(Model):
    """A stack of masked self-attention and feed-forward layers; input and output embeddings are one matrix."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad, self.page_width = config, target_size - 1, config.context
        self.output_embedding = make_embedding(target_size, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad)) if config.output_bias else None
        self.positions = Positions(config)
        self.embedding_dropout = Dropout(config.dropout)
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(config) for _ in range(config.num_decoder_layers)
        )
        self.norm = make_norm(config) if config.norm == "pre" else nn.Identity()

    def encode(self, source: Source) -> None:
        """There is nothing to read."""

    def decode(self, target: Tokens, memory: None) -> Float[Tensor, "R W D"]:
        """The hidden states from which each next token is predicted, for all positions at once."""
        keep = keep_earlier_of(target, self.config.window)
        x = self._embed(target.ids, target.position, target.width)
        for layer in self.layers:
            x = layer(x, target.position, keep)
        return normalise(self.norm, x, target.segment)

    def begin(self, memory: None) -> TextState:
        """The state before the first token."""
        return TextState([Cache() for _ in self.layers])

    def step(self, tokens: Int[Tensor, "R"], state: TextState) -> Float[Tensor, "R V"]:
        """Logits of the next token of each row, given its newest one."""
        return self.project(self.extend(tokens[:, None], state)[:, 0])

    def extend(self, tokens: Int[Tensor, "R W"], state: TextState) -> Float[Tensor, "R W D"]:
        """Hidden states after further tokens of each row: several at the beginning of a text, and then one at a time."""
        assert state.length == 0 or tokens.shape[1] == 1, "only the first tokens may be several"
        position = torch.arange(state.length, state.length + tokens.shape[1], device=tokens.device).expand_as(tokens)
        new = Sequences(tokens, position, torch.ones_like(tokens))
        keep = keep_earlier_of(new, self.config.window) if new.width > 1 else None
        state.length += new.width
        x = self._embed(tokens, position, state.length)
        for layer, cache in zip(self.layers, state.caches, strict=True):
            x = layer(x, position, keep, cache)
        return normalise(self.norm, x, new.segment)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {"encoder": [], "decoder": [layer.attention for layer in self.layers], "cross": []}

    def matrices(self) -> Matrices:
        return layer_matrices(self.layers)

    def _embed(self, ids: Int[Tensor, "R W"], position: Int[Tensor, "R W"], longest: int) -> Float[Tensor, "R W D"]:
        if tokens := tokens_beyond(position, longest, self.config.context):
            raise DataError(f"{tokens} tokens are more than the model's context of {self.config.context} tokens")
        return self.embedding_dropout(self.positions(embed(self.output_embedding, ids), position, longest))


# --- what training costs -----------------------------------------------------------------------------------------


def decoder_flops(
    config: DecoderConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens, counted as in `transduce/model/cost.py`.

    A token attends to half of its context on average, or to what is in its window.
    """
    seen = min(config.context / 2, config.window + 1) if config.window else config.context / 2
    layer = attention_weights(config) + feed_forward_weights(config) + products_per_key(config) * seen
    return OPERATIONS_PER_WEIGHT * (config.num_decoder_layers * layer + config.d_model * classes) * target_tokens


def decoder_activations(config: DecoderConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    return stack_activations(config, config.num_decoder_layers, masks) * target_positions
