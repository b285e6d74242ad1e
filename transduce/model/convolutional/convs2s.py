"""ConvS2S: "Convolutional Sequence to Sequence Learning" (Gehring et al. 2017), https://arxiv.org/abs/1705.03122.

    source + positions ── convolution, GLU, residual ── × n ──┬── z: keys
                                                              └── z + source embeddings: values
    target + positions ── causal convolution, GLU ── attention ── residual ── × n ── next token

Sizes, initial weights and the scaling of variances and gradients are the paper's (sections 3.4, 3.5 and 4.2) and, where it says
nothing, those of its code in fairseq. Sums are scaled by sqrt(1/2), so that variances stay near one without norms.

Differs from the paper: the output layer is not weight-normalised, and may be tied to the embeddings.

Axes: R rows, S source positions, W target positions, D d_model, C units of a layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, glu, linear

from transduce.config.models import ConvS2SConfig
from transduce.model.attention import Tap, masked_softmax
from transduce.model.convolutional.neighbours import Past, causal, centred, with_neighbours
from transduce.model.convolutional.weight_norm import NormedLinear
from transduce.model.dropout import Dropout
from transduce.model.embeddings import make_embeddings
from transduce.model.model import Model
from transduce.model.positions import check_positions
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep, Source, Tokens, keep_source

SQRT_HALF = 0.5**0.5
EMBEDDING_STD = 0.1  # also of learned positions, as in the paper


@dataclass(frozen=True)
class ConvMemory:
    """What the decoder attends to, with the sentence that each position belongs to."""

    keys: Float[Tensor, "R S D"]
    values: Float[Tensor, "R S D"]
    segment: Int[Tensor, "R S"]


@dataclass(frozen=True)
class Attended:
    """The memory as the target positions see it: each of them its own source sentence."""

    memory: ConvMemory
    keep: Keep

    @cached_property
    def scale(self) -> Float[Tensor, "R W 1"]:
        """sqrt(m) for a source of m tokens: the paper's m sqrt(1/m), since a mean of m values varies less (section 3.4)."""
        return self.keep.mask[:, 0].sum(-1, keepdim=True).to(self.memory.values.dtype).sqrt()

    def select(self, rows: Int[Tensor, "N"]) -> "Attended":
        tensors = (self.memory.keys, self.memory.values, self.memory.segment)
        return Attended(ConvMemory(*(t.index_select(0, rows) for t in tensors)), self.keep.select(rows))


@dataclass
class ConvState:
    """Translations in progress, one per row: what `step` reads and updates."""

    source: Attended
    past: list[Past]
    weights: list["StepWeights"]  # normalised once for the whole search
    length: int = 0

    def select(self, rows: Int[Tensor, "N"]) -> "ConvState":
        self.source = self.source.select(rows)
        for past in self.past:
            past.select(rows)
        return self


@dataclass(frozen=True)
class StepWeights:
    """The matrices of one decoder layer, gains multiplied in."""

    convolution: Tensor
    query: Tensor
    context: Tensor


class ScaledGradient(torch.autograd.Function):
    """The input itself, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


class GatedConvolution(nn.Module):
    """Dropout, a convolution to twice the units, and a gated linear unit."""

    def __init__(self, units: int, offsets: range, dropout: float) -> None:
        super().__init__()
        self.offsets, self.dropout = offsets, Dropout(dropout)
        std = (4 * (1 - dropout) / (len(offsets) * units)) ** 0.5  # a GLU quarters the variance
        self.product = NormedLinear(len(offsets) * units, 2 * units, std)

    def forward(self, x: Float[Tensor, "R W C"], segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W C"]:
        return glu(self.product(with_neighbours(self.dropout(x), segment, self.offsets)), dim=-1)


class SourceAttention(nn.Module):
    """Dot products of the decoder's state, plus the target embedding, with the encoder's output (equations 1 and 2)."""

    def __init__(self, units: int, d_model: int) -> None:
        super().__init__()
        self.query, self.context = normed(units, d_model), normed(d_model, units)
        self.tap: Tap | None = None

    def forward(self, x: Float[Tensor, "R W C"], embedded: Tensor, source: Attended) -> Float[Tensor, "R W C"]:
        return self.context(self.attend(self.query(x), embedded, source))

    def attend(self, query: Tensor, embedded: Tensor, source: Attended) -> Float[Tensor, "R W D"]:
        """The weighted mean of the values, scaled to the variance of one of them."""
        keys, values = source.memory.keys, source.memory.values
        scores = ((query + embedded) * SQRT_HALF) @ keys.transpose(1, 2)
        weights = masked_softmax(scores[:, None].float(), source.keep.mask)
        if self.tap is not None:
            self.tap(weights)
        return (weights[:, 0].to(values.dtype) @ values) * source.scale


class EncoderLayer(nn.Module):
    """A gated convolution with a residual connection, projected where the number of units changes."""

    def __init__(self, inputs: int, units: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.widen = normed(inputs, units) if inputs != units else None
        self.convolution = GatedConvolution(units, centred(kernel), dropout)

    def forward(self, x: Tensor, segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W C"]:
        x = x if self.widen is None else self.widen(x)
        return (x + self.convolution(x, segment)) * SQRT_HALF


class DecoderLayer(nn.Module):
    """A causal gated convolution, then attention to the source, each with a residual connection."""

    def __init__(self, inputs: int, units: int, kernel: int, config: ConvS2SConfig) -> None:
        super().__init__()
        self.widen = normed(inputs, units) if inputs != units else None
        self.convolution = GatedConvolution(units, causal(kernel), config.dropout)
        self.attention = SourceAttention(units, config.d_model)

    def forward(
        self, x: Tensor, segment: Int[Tensor, "R W"], embedded: Tensor, source: Attended
    ) -> Float[Tensor, "R W C"]:
        x = x if self.widen is None else self.widen(x)
        y = self.convolution(x, segment)
        y = (y + self.attention(y, embedded, source)) * SQRT_HALF
        return (x + y) * SQRT_HALF

    def step_weights(self) -> StepWeights:
        attention = self.attention
        return StepWeights(self.convolution.product.weight, attention.query.weight, attention.context.weight)

    def step(self, x: Tensor, embedded: Tensor, state: ConvState, number: int) -> Float[Tensor, "R C"]:
        """The same for one new position, from the inputs kept of earlier ones."""
        weights, attention = state.weights[number], self.attention
        x = x if self.widen is None else self.widen(x)
        y = glu(linear(state.past[number].append(x), weights.convolution, self.convolution.product.bias), dim=-1)
        query = linear(y, weights.query, attention.query.bias)
        found = attention.attend(query[:, None], embedded[:, None], state.source)[:, 0]
        y = (y + linear(found, weights.context, attention.context.bias)) * SQRT_HALF
        return (x + y) * SQRT_HALF


class ConvS2S(Model):
    """Gated convolutions on both sides, and attention in every layer of the decoder."""

    page_width = 128
    config: ConvS2SConfig

    def __init__(self, config: ConvS2SConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad = config, target_size - 1
        self.source_embedding, self.target_embedding, self.output_embedding = make_embeddings(
            source_size, target_size, config.d_model, config.tie, EMBEDDING_STD
        )
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad))
        self.source_positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        self.target_positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        for table in (self.source_positions, self.target_positions):
            nn.init.normal_(table, std=EMBEDDING_STD)
        self.dropout = Dropout(config.dropout)
        self._make_layers(config)

    def _make_layers(self, config: ConvS2SConfig) -> None:
        encoder, decoder = config.encoder_shape, config.decoder_shape
        inputs = [[shape[0][0], *(units for units, _ in shape[:-1])] for shape in (encoder, decoder)]
        d, rate = config.d_model, config.dropout
        self.enter_encoder, self.leave_encoder = normed(d, encoder[0][0], rate), normed(encoder[-1][0], d)
        self.enter_decoder, self.leave_decoder = normed(d, decoder[0][0], rate), normed(decoder[-1][0], d)
        self.encoder: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(into, *shape, rate) for into, shape in zip(inputs[0], encoder, strict=True)
        )
        self.decoder: Sequence[DecoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(into, *shape, config) for into, shape in zip(inputs[1], decoder, strict=True)
        )

    def encode(self, source: Source) -> ConvMemory:
        """The encoder's gradient comes from every attention, and is divided by twice their number (section 3.4)."""
        assert isinstance(source, Tokens)
        embedded = self._embed(self.source_embedding, self.source_positions, source.ids, source.position, source.width)
        x = self.enter_encoder(embedded)
        for layer in self.encoder:
            x = layer(x, source.segment)
        keys: Tensor = ScaledGradient.apply(self.leave_encoder(x), 0.5 / len(self.decoder))
        return ConvMemory(keys, (keys + embedded) * SQRT_HALF, source.segment)

    def decode(self, target: Tokens, memory: ConvMemory) -> Float[Tensor, "R W D"]:
        embedded = self._embed(self.target_embedding, self.target_positions, target.ids, target.position, target.width)
        source = Attended(memory, keep_source(target.segment, memory.segment))
        x = self.enter_decoder(embedded)
        for layer in self.decoder:
            x = layer(x, target.segment, embedded, source)
        return self.dropout(self.leave_decoder(x))

    def begin(self, memory: ConvMemory) -> ConvState:
        keep = keep_source(torch.ones_like(memory.segment[:, :1]), memory.segment)
        past = [Past(layer.convolution.offsets) for layer in self.decoder]
        return ConvState(Attended(memory, keep), past, [layer.step_weights() for layer in self.decoder])

    def step(self, tokens: Int[Tensor, "R"], state: ConvState) -> Float[Tensor, "R V"]:
        position = torch.full_like(tokens, state.length)
        state.length += 1
        embedded = self._embed(self.target_embedding, self.target_positions, tokens, position, state.length)
        x = self.enter_decoder(embedded)
        for number, layer in enumerate(self.decoder):
            x = layer.step(x, embedded, state, number)
        return self.project(self.leave_decoder(x))

    def attentions(self) -> Mapping[str, Sequence[SourceAttention]]:
        return {"encoder": [], "decoder": [], "cross": [layer.attention for layer in self.decoder]}

    def _embed(self, table: nn.Embedding, positions: Tensor, ids: Tensor, position: Tensor, longest: int) -> Tensor:
        check_positions(position, longest, len(positions), remedy="train with a larger model.max_positions")
        return self.dropout(embedding(ids, table.weight, table.padding_idx) + embedding(position, positions))


def normed(inputs: int, outputs: int, dropout: float = 0.0) -> NormedLinear:
    return NormedLinear(inputs, outputs, ((1 - dropout) / inputs) ** 0.5)
