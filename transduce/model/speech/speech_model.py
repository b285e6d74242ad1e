"""The speech recogniser: frames of sound in, text out.

Two convolutions shorten the frames, and the encoder and decoder of a Transformer do the rest. In training, the encoder also predicts
the text by itself through a CTC output; in a search, its prefix probabilities keep the decoder from skipping or repeating parts.

Axes: R rows, S positions of the encoder, W target positions, D d_model, V target classes (all ids but `<pad>`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transduce.config import SpeechConfig
from transduce.errors import SettingError
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import EncoderLayer, layer_matrices, normalise
from transduce.model.losses import IGNORED, Loss, projected_loss
from transduce.model.model import Matrices, Model
from transduce.model.shapes import Float, Int
from transduce.model.speech.ctc import ctc_loss
from transduce.model.speech.layers import ConformerLayer, ConvolutionModule, Subsampling, subsampled
from transduce.model.speech.prefixes import Prefixes
from transduce.model.tokens import Frames, Source, Tokens, keep_whole_row
from transduce.model.transformer import DecoderState, Memory, Transformer

END = 0  # the id of `</s>`


@dataclass
class SpeechState:
    """A search in progress: the decoder's state, and CTC's prefixes if the search uses them."""

    decoder: DecoderState
    prefixes: Prefixes | None

    def select(self, rows: Int[Tensor, "N"]) -> "SpeechState":
        self.decoder.select(rows)
        self.prefixes = self.prefixes.select(rows) if self.prefixes else None
        return self


class SpeechModel(Model):
    """A Transformer whose source is sound."""

    config: SpeechConfig
    captured_in_rows = True

    def __init__(self, config: SpeechConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config, self.target_pad, self.output_bias = config, target_size - 1, None
        self.front = Subsampling(config)
        layers = config.transformer
        self.transformer = Transformer(replace(layers, num_encoder_layers=0), target_size, target_size)
        self.output_embedding = self.transformer.output_embedding
        self.encoder: Sequence[ConformerLayer | EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            ConformerLayer(config) if config.convolution else EncoderLayer(layers)
            for _ in range(config.num_encoder_layers)
        )
        self.ctc = nn.Linear(config.d_model, target_size) if config.ctc_weight else None  # `<pad>` is the blank
        self.ctc_search = config.ctc_search

    def encode(self, source: Source) -> Memory:
        assert isinstance(source, Frames)
        inner = self.transformer
        position, segment = subsampled(source)
        x = self.front(source)
        x = inner.embedding_dropout(inner.source_positions(x, position, x.shape[1]))
        keep = keep_whole_row(segment)
        for layer in self.encoder:
            x = layer(x, position, keep)
        return Memory(normalise(inner.encoder_norm, x, segment), segment)

    def decode(self, target: Tokens, memory: Memory) -> Float[Tensor, "R W D"]:
        return self.transformer.decode(target, memory)

    def ctc_log_probs(self, memory: Memory) -> Float[Tensor, "R S C"]:
        """The log-probability of each class at each position of the encoder; the last class is the blank."""
        assert self.ctc is not None
        return self.ctc(memory.hidden).float().log_softmax(-1)

    def loss(self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float) -> Loss:
        """The decoder's loss and that of CTC, weighted by `ctc_weight`; both are sums over the batch."""
        memory = self.encode(source)
        hidden = self.decode(target, memory)
        table, bias = self.output_embedding.weight, self.output_bias
        of_decoder = projected_loss(hidden, table, bias, labels, smoothing)
        if self.ctc is None:
            return of_decoder
        frames, counts = (memory.segment != 0).sum(1), (labels != IGNORED).sum(1) - 1  # `</s>` has no sound
        spelt = labels.clamp(min=0).long()
        of_ctc = ctc_loss(self.ctc_log_probs(memory), frames, spelt, counts.clamp(min=0), self.target_pad).sum()
        weight = self.config.ctc_weight
        return Loss((1 - weight) * of_decoder.minimised + weight * of_ctc, of_decoder.cross_entropy)

    def r_drop_loss(
        self, source: Source, target: Tokens, labels: Int[Tensor, "R W"], smoothing: float, weight: float
    ) -> Loss:
        raise SettingError("train.r_drop: speech models are trained without R-Drop: set it to 0")

    @property
    def never(self) -> tuple[int, ...]:
        """With CTC, `<pad>` takes what is left of the probability; see `step`."""
        return (self.target_pad,) if self.ctc is not None and self.ctc_search else ()

    def begin(self, memory: Memory) -> SpeechState:
        prefixes = None
        if self.ctc is not None and self.ctc_search:
            prefixes = Prefixes.at_start(self.ctc_log_probs(memory), (memory.segment != 0).sum(1), END)
        return SpeechState(self.transformer.begin(memory), prefixes)

    def step(self, tokens: Int[Tensor, "R"], state: SpeechState) -> Float[Tensor, "R V1"]:
        """Logits of the next token: those of the decoder, or a weighted sum of its log-probabilities and CTC's.

        The weighted sums are the logarithms of less than 1 together. What is left goes to `<pad>`, which is never chosen, so that
        normalising them changes nothing: a prefix on which the two disagree keeps its low score.
        """
        is_first = state.decoder.length == 0
        logits = self.transformer.step(tokens, state.decoder)
        if state.prefixes is None:
            return logits
        if not is_first:
            state.prefixes = state.prefixes.extended(tokens, END)
        of_ctc = state.prefixes.continuations().clamp(min=-1e4).float()
        both = (1 - self.ctc_search) * logits.float().log_softmax(-1) + self.ctc_search * of_ctc
        left = (1 - both.exp().sum(-1, keepdim=True)).clamp(min=1e-30).log()
        return torch.cat([both, left], -1)

    def matrices(self) -> Matrices:
        gates: Matrices = {
            module.gates.weight: 2 * [self.config.d_model]
            for module in self.modules()
            if isinstance(module, ConvolutionModule)
        }
        return super().matrices() | layer_matrices([*self.encoder, *self.transformer.decoder]) | gates

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {**self.transformer.attentions(), "encoder": [layer.attention for layer in self.encoder]}
