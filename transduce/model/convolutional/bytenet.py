"""ByteNet: "Neural Machine Translation in Linear Time" (Kalchbrenner et al. 2016), https://arxiv.org/abs/1610.10099.

    source ── dilated residual blocks ── × n ──┐ column t
    target ───────────────────────────────────(+)── causal dilated residual blocks ── × n ── next token t

There is no attention. The decoder is stacked on the encoder: when it predicts token t, it reads column t of the encoder's
output, and zeros once the source has ended (dynamic unfolding, section 3.2). Dilations double from block to block, so that a
few blocks see a whole sentence.

Differs from the paper: subwords where the paper has characters; the source is not padded to 1.2 times its
length before the encoder reads it; the encoder's output is normalised before it is added; dropout.

Axes: R rows, S source positions, W target positions, D d_model, C units inside a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from transduce.config.models import ByteNetConfig
from transduce.model.convolutional.neighbours import Past, causal, centred, with_neighbours
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embeddings
from transduce.model.model import Model
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens

AFTER_THE_LAST = 1 << 30  # stands for padding, after the sentences of a row


@dataclass(frozen=True)
class Columns:
    """What the encoder gives: a vector for each source token, zero where a row is padding, and the sentence it belongs to."""

    values: Float[Tensor, "R S D"]
    segment: Int[Tensor, "R S"]

    def under(self, target: Tokens) -> Float[Tensor, "R W D"]:
        """For target token t of a sentence, the column of source token t of the same sentence; zero after its end."""
        rising = self.segment.masked_fill(self.segment == 0, AFTER_THE_LAST)
        column = torch.searchsorted(rising, target.segment) + target.position  # the first of the sentence, plus t
        last = self.segment.shape[1] - 1
        inside = column.clamp(max=last)
        ended = (self.segment.gather(1, inside) != target.segment) | (column > last)
        # The backward pass adds atomically on a GPU, with the same bits every time: a column gets one gradient, and zeros.
        columns = self.values.gather(1, inside[..., None].expand(-1, -1, self.values.shape[-1]))
        return columns.masked_fill(ended[..., None], 0)


@dataclass
class ByteNetState:
    """Translations in progress, one per row: what `step` reads and updates."""

    columns: Float[Tensor, "R S D"]
    past: list[Past]
    length: int = 0

    def select(self, rows: Int[Tensor, "N"]) -> "ByteNetState":
        self.columns = self.columns.index_select(0, rows)
        for past in self.past:
            past.select(rows)
        return self


class ResidualBlock(nn.Module):
    """Figure 3, left: three products, each after a norm and a ReLU; the middle one is the dilated convolution."""

    def __init__(self, config: ByteNetConfig, offsets: range) -> None:
        super().__init__()
        units = config.d_model // 2
        self.offsets = offsets
        self.narrow, self.convolution = nn.Linear(config.d_model, units), nn.Linear(len(offsets) * units, units)
        self.widen = nn.Linear(units, config.d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (config.d_model, units, units))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"]) -> Float[Tensor, "R W D"]:
        return x + self.after(with_neighbours(self.before(x), segment, self.offsets))

    def step(self, x: Float[Tensor, "R D"], past: Past) -> Float[Tensor, "R D"]:
        """The same for one new position, from the inputs kept of earlier ones."""
        return x + self.after(past.append(self.before(x)))

    def before(self, x: Tensor) -> Tensor:
        """The input of the convolution."""
        return relu(self.norms[1](self.narrow(relu(self.norms[0](x)))))

    def after(self, taps: Tensor) -> Tensor:
        return self.dropout(self.widen(relu(self.norms[2](self.convolution(taps)))))


class ByteNet(Model):
    """A decoder of dilated convolutions over an encoder of dilated convolutions."""

    page_width = 128
    config: ByteNetConfig

    def __init__(self, config: ByteNetConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad = config, target_size - 1
        self.source_embedding, self.target_embedding, self.output_embedding = make_embeddings(
            source_size, target_size, config.d_model, config.tie
        )
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad))
        self.dropout = Dropout(config.dropout)
        width, dilations = config.kernel_width, config.dilations
        self.encoder: Sequence[ResidualBlock] = nn.ModuleList(  # type: ignore[assignment]
            ResidualBlock(config, centred(width, dilation)) for dilation in dilations(config.num_encoder_layers)
        )
        self.decoder: Sequence[ResidualBlock] = nn.ModuleList(  # type: ignore[assignment]
            ResidualBlock(config, causal(width, dilation)) for dilation in dilations(config.num_decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)
        self.last = nn.Linear(config.d_model, config.d_model)

    def encode(self, source: Source) -> Columns:
        assert isinstance(source, Tokens)
        x = self.dropout(embed(self.source_embedding, source.ids))
        for block in self.encoder:
            x = block(x, source.segment)
        return Columns(self.encoder_norm(x) * source.real[..., None], source.segment)

    def decode(self, target: Tokens, memory: Columns) -> Float[Tensor, "R W D"]:
        x = self.dropout(embed(self.target_embedding, target.ids) + memory.under(target))
        for block in self.decoder:
            x = block(x, target.segment)
        return self._leave(x)

    def begin(self, memory: Columns) -> ByteNetState:
        return ByteNetState(memory.values, [Past(block.offsets) for block in self.decoder])

    def step(self, tokens: Int[Tensor, "R"], state: ByteNetState) -> Float[Tensor, "R V"]:
        x = embed(self.target_embedding, tokens)
        if state.length < state.columns.shape[1]:
            x = x + state.columns[:, state.length]
        state.length += 1
        for block, past in zip(self.decoder, state.past, strict=True):
            x = block.step(x, past)
        return self.project(self._leave(x))

    def _leave(self, x: Tensor) -> Tensor:
        return self.dropout(relu(self.last(relu(self.decoder_norm(x)))))
