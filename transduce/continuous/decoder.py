"""The model's decoder over slots: one token per step and row, in memory that is allocated once.

Computes what `Transformer.step` computes. The difference is in memory: the caches have their full size from the start, a
slot can be given to another sentence, and beams are reordered through a table instead of copying their caches. So every
step is the same sequence of kernels on the same tensors, which a GPU can capture and replay.

Knows ids and vectors; `transduce/continuous/search.py` decides which token comes next.

Axes: B slots, W beams, R = B W rows, T positions of an output, S positions of a source, D d_model, V classes, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from transduce.config import ModelConfig, TransformerConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.continuous import kernels, plain
from transduce.model import kernels as model_kernels
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import FeedForward
from transduce.model.transformer import Memory, Transformer

# There is no dropout in decoding. Norms, activations, embeddings and the projection are the model's own modules.
SUPPORTS = Supports(
    TransformerConfig,
    {
        **SIZES,
        **DROPOUT,
        "norm": ("post", "pre"),
        "norm_kind": ("layer", "rms"),
        "positions": ("sinusoidal", "marian", "learned", "none"),
        "activation": ("relu", "gelu", "swish", "swiglu"),
        "output_bias": ANY,
        "tie": ("all", "target", "none"),
    },
)


def understands(config: ModelConfig) -> bool:
    """Whether slots support a model with these settings, including the width of its heads."""
    if SUPPORTS.refusal(config) or not isinstance(config, TransformerConfig):
        return False
    return config.heads_fill_d_model and config.key_width in model_kernels.HEAD_WIDTHS


@dataclass(frozen=True)
class EncodedSources:
    """The keys and values of N sources in every decoder layer."""

    keys_values: Tensor  # [N, S, layers, 2 D]
    lengths: Tensor  # [N]

    def rows(self, rows: slice) -> "EncodedSources":
        return EncodedSources(self.keys_values[rows], self.lengths[rows])


class SlotDecoder:
    """The decoder of a model with caches for B slots of W beams."""

    def __init__(self, model: Transformer, slots: int, beams: int, positions: int, source_positions: int) -> None:
        self.model, self.beams, self.norms = model, beams, _norms(model)
        like, rows, width = model.target_embedding.weight, slots * beams, model.config.d_model
        self.keys = [like.new_zeros(rows, positions, width) for _ in model.decoder]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.sources = like.new_zeros(slots, source_positions, len(model.decoder), 2 * width)
        self.lengths = torch.zeros(slots, dtype=torch.int32, device=like.device)
        self.row = torch.arange(rows, dtype=torch.int32, device=like.device)
        self.table = self.row[:, None].repeat(1, positions)  # the row whose cache holds a position of this row
        self.longest = min(positions, model.config.longest_target or positions)

    @staticmethod
    def bytes_per_position(config: TransformerConfig, kind: torch.dtype) -> int:
        """The memory of one position of one row, at most: keys and values of the output and of the source."""
        return 4 * config.d_model * config.num_decoder_layers * kind.itemsize

    def project_sources(self, memory: Memory, into: Tensor | None = None) -> EncodedSources:
        """The source's keys and values in every layer, computed once per sentence; written to `into` if it is given."""
        width, attentions = memory.hidden.shape[2], [layer.source_attention.stacked for layer in self.model.decoder]
        shape = (*memory.hidden.shape[:2], *self.sources.shape[2:])
        sources = self.sources.new_empty(shape) if into is None else into
        for number, stacked in enumerate(attentions):
            sources[:, :, number] = linear(memory.hidden, stacked.weight[width:], stacked.bias[width:])
        return EncodedSources(sources, (memory.segment != 0).sum(1, dtype=torch.int32))

    def put(self, slots: Tensor, sources: EncodedSources) -> None:
        """Give these slots [N] to other sentences."""
        self.sources[slots, : sources.keys_values.shape[1]] = sources.keys_values
        self.lengths[slots] = sources.lengths

    def step(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The hidden states [R, D] after these tokens [R], which are at the `position` [B] of their slots."""
        positions = position.repeat_interleave(self.beams)[:, None]
        x = self.model.embed_target(tokens[:, None], positions, self.longest)[:, 0]
        pre, norms = self.model.config.norm == "pre", iter(self.norms)
        y = next(norms)(x) if pre else x  # the input of the next sub-layer
        for number, layer in enumerate(self.model.decoder):
            attention, source, feed = layer.attention, layer.source_attention, layer.feed_forward
            x, y = _leave(x, self._to_past(attention, y, number, position), attention.output, next(norms), pre)
            x, y = _leave(x, self._to_source(source, y, number), source.output, next(norms), pre)
            x, y = _leave(x, _hidden(feed, y), feed.outer, next(norms), pre)
        return y

    def reorder(self, parents: Tensor, position: Tensor) -> None:
        """Let row r continue row `parents[r]`, whose newest token was written at the position of its slot."""
        self.table.scatter_(1, position.repeat_interleave(self.beams)[:, None], self.row[:, None])
        self.table.copy_(self.table.index_select(0, parents))

    def _to_past(self, attention: MultiHeadAttention, y: Tensor, number: int, position: Tensor) -> Tensor:
        product, bias = linear(y, attention.stacked.weight), attention.stacked.bias
        attend = kernels.attend_to_past if model_kernels.supports(y) else plain.attend_to_past
        return attend(product, bias, self.keys[number], self.values[number], self.table, position, attention.heads)

    def _to_source(self, attention: MultiHeadAttention, y: Tensor, number: int) -> Tensor:
        width = y.shape[1]
        queries = linear(y, attention.stacked.weight[:width], attention.stacked.bias[:width])
        attend = kernels.attend_to_source if model_kernels.supports(y) else plain.attend_to_source
        return attend(queries, self.sources[:, :, number], self.lengths, attention.heads)


def best_classes(model: Transformer, hidden: Tensor, count: int, forced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, as log-probabilities and ids [R, K], and the log-probability of its
    forced class [R]; the log-probabilities of the other classes are never written."""
    weight, bias = model.classes
    logits = linear(hidden, model.output_embedding.weight) if bias is None else linear(hidden, weight, bias)
    find = kernels.best if model_kernels.supports(hidden) and count <= kernels.MAX_BEST else plain.best
    return find(logits, len(weight), count, forced)


# --- around a sub-layer: what `Residual` does, with the end of one and the beginning of the next in one kernel ------


def _norms(model: Transformer) -> list[nn.Module]:
    """In the order they are applied: one before each sub-layer and one at the end, or one after each sub-layer."""
    residuals = [
        residual
        for layer in model.decoder
        for residual in (layer.attention_residual, layer.source_attention_residual, layer.feed_forward_residual)
    ]
    return [*(residual.norm for residual in residuals), model.decoder_norm]


def _leave(x: Tensor, y: Tensor, last: nn.Linear, norm: nn.Module, pre: bool) -> tuple[Tensor, Tensor]:
    """Apply the sub-layer's last product, the residual sum and the next norm (nothing is dropped in decoding).

    Gives the residual stream and the input of the next sub-layer.
    """
    if model_kernels.supports(x) and isinstance(norm, nn.LayerNorm):
        total, normed = model_kernels.add_bias_and_norm(
            x, linear(y, last.weight), last.bias, norm.weight, norm.bias, norm.eps
        )
    else:
        total = x + last(y)
        normed = norm(total)
    return (total if pre else normed), normed


def _hidden(feed_forward: FeedForward, y: Tensor) -> Tensor:
    if model_kernels.supports(y) and feed_forward.activation is relu:
        return model_kernels.relu_product(y, feed_forward.inner.weight, feed_forward.inner.bias)
    return feed_forward.hidden(y)
