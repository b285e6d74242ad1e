"""Translation by a decoder alone: it reads the source, and continues with the target (Liu et al., "Generating Wikipedia by
Summarizing Long Sequences", 2018).

    sequence:   x1  x2 ... </s>  <pad>  y1   y2  ...  ym
    position:   0   1  ... n-1   n      n+1  n+2 ...  n+m
    predicts:                    y1     y2   y3  ...  </s>

Source and target pass the same layers as one sequence. Its positions continue from one to the other: the target begins at the
length of its source, `</s>` counted. `<pad>`, with which every target begins, separates the two. The loss is that of the target.
With `source_mask = "full"`, source tokens see the whole source (the prefix language model of Raffel et al. 2020).

In a batch, a row of sources and its row of targets become one row, the sources first. Sentences are told apart by their
segments, so padding between source and target, or the neighbours in a packed row, are not seen.

Differs from the paper, whose layers have local and memory-compressed attention for inputs of thousands of tokens, and whose
decoder learns to predict its input too.

Axes: R rows, S source positions, W target positions, D d_model, V target classes (all ids but `<pad>`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from transduce.config.models.prefix import PrefixConfig
from transduce.model.attention import Cache, Tap
from transduce.model.cost import (
    OPERATIONS_PER_WEIGHT,
    attention_weights,
    feed_forward_weights,
    products_per_key,
    stack_activations,
)
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embeddings
from transduce.model.layers import EncoderLayer, layer_matrices, make_norm, normalise
from transduce.model.model import Matrices, Model
from transduce.model.positions import Positions, check_positions
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep, Source, Tokens


@dataclass
class PrefixState:
    """Translations in progress, one per row and all of the same length: what `step` reads and updates."""

    caches: list[Cache]  # of the source, and then of the target so far
    source: Int[Tensor, "R S"]  # segments: 0 is padding, which lies between source and target
    length: int = 0  # of the targets

    def select(self, rows: Int[Tensor, "N"]) -> "PrefixState":
        """Keep these rows in this order."""
        self.source = self.source.index_select(0, rows)
        for cache in self.caches:
            cache.select(rows)
        return self


@dataclass
class Use:
    """The attention of one layer within the source, within the target, or from target to source; its tap gets that part."""

    tap: Tap | None = None


class Prefix(Model):
    """A stack of self-attention and feed-forward layers over source and target as one sequence."""

    page_width = 64  # so that source and target together have the 128 positions that the attention kernel covers
    config: PrefixConfig

    def __init__(self, config: PrefixConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad = config, target_size - 1
        self.source_embedding, self.target_embedding, self.output_embedding = make_embeddings(
            source_size, target_size, config.d_model, config.tie
        )
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad)) if config.output_bias else None
        self.positions = Positions(config)
        self.embedding_dropout = Dropout(config.dropout)
        self.layers: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(config) for _ in range(config.num_decoder_layers)
        )
        self.norm = make_norm(config) if config.norm == "pre" else nn.Identity()
        self.uses = {part: [Use() for _ in self.layers] for part in ("encoder", "decoder", "cross")}

    def encode(self, source: Source) -> Tokens:
        """The source, unchanged: it passes through the layers together with the target, or in `begin`."""
        assert isinstance(source, Tokens)
        return source

    def decode(self, target: Tokens, memory: Tokens) -> Float[Tensor, "R W D"]:
        """The hidden states from which each next target token is predicted, for all target positions at once."""
        position = torch.cat([memory.position, positions_after(memory, target)], 1)
        segment = torch.cat([memory.segment, target.segment], 1)
        x = torch.cat([embed(self.source_embedding, memory.ids), embed(self.target_embedding, target.ids)], 1)
        x, keep = self._placed(x, position, segment.shape[1]), self._keep(segment, memory.width)
        for number, layer in enumerate(self.layers):
            layer.attention.tap = self._tap(number, memory.width)
            x = layer(x, position, keep)
        return normalise(self.norm, x[:, memory.width :], target.segment)

    def begin(self, memory: Tokens) -> PrefixState:
        """The state before the first target token: here the source passes the layers, which cache its keys and values."""
        caches = [Cache() for _ in self.layers]
        x = self._placed(embed(self.source_embedding, memory.ids), memory.position, memory.width)
        keep = self._keep(memory.segment, memory.width)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory.position, keep, cache)
        return PrefixState(caches, memory.segment)

    def step(self, tokens: Int[Tensor, "R"], state: PrefixState) -> Float[Tensor, "R V"]:
        """Logits of the next token of each row, given its newest one."""
        position = (state.source != 0).sum(1, keepdim=True) + state.length
        state.length += 1
        seen = pad(state.source, (0, state.length), value=1)
        x = self._placed(embed(self.target_embedding, tokens[:, None]), position, seen.shape[1])
        keep = Keep(torch.ones_like(position), seen)
        for layer, cache in zip(self.layers, state.caches, strict=True):
            x = layer(x, position, keep, cache)
        return self.project(normalise(self.norm, x, keep.query)[:, 0])

    def attentions(self) -> dict[str, list[Use]]:
        """All three uses are parts of one softmax: a target position's weights over source and target sum to 1 together."""
        return self.uses

    def matrices(self) -> Matrices:
        return layer_matrices(self.layers)

    def _keep(self, segment: Int[Tensor, "R K"], source_width: int) -> Keep:
        return Keep(segment, segment, causal=True, prefix=source_width if self.config.source_mask == "full" else 0)

    def _tap(self, number: int, source_width: int) -> Tap | None:
        """Divides the weights of a layer among its uses; None if no use has a tap."""
        taps = {part: tap for part, uses in self.uses.items() if (tap := uses[number].tap)}
        return partial(_divide, taps, source_width) if taps else None

    def _placed(self, x: Float[Tensor, "R W D"], position: Int[Tensor, "R W"], longest: int) -> Float[Tensor, "R W D"]:
        """The input of the first layer: embeddings plus positions, all below `longest`."""
        check_positions(position, longest, self.positions.limit, "source and target have {} tokens together")
        return self.embedding_dropout(self.positions(x, position, longest))


def _divide(taps: dict[str, Tap], source_width: int, weights: Float[Tensor, "R H Q K"]) -> None:
    """Hand each use its part of the weights of a layer."""
    source, target = slice(None, source_width), slice(source_width, None)
    parts = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for part, tap in taps.items():
        queries, keys = parts[part]
        tap(weights[:, :, queries, keys])


def positions_after(source: Tokens, target: Tokens) -> Int[Tensor, "R W"]:
    """The position of each target token in the sequence of its source and itself; 0 for padding."""
    lengths = (target.segment[:, :, None] == source.segment[:, None, :]).sum(-1)
    return ((lengths + target.position) * target.real).to(target.position.dtype)


# --- what training costs -----------------------------------------------------------------------------------------


def prefix_flops(
    config: PrefixConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens, counted as in `transduce/model/cost.py`: every token is compared with both sides."""
    layer = attention_weights(config) + feed_forward_weights(config) + products_per_key(config) * 2 * mean_length
    layers = config.num_decoder_layers * layer * (source_tokens + target_tokens)
    return OPERATIONS_PER_WEIGHT * (layers + config.d_model * classes * target_tokens)


def prefix_activations(config: PrefixConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    return stack_activations(config, config.num_decoder_layers, masks) * (source_positions + target_positions)
