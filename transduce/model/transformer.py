"""The Transformer: `encode(source) -> Memory`, `decode(target, memory) -> hidden`, `project(hidden) -> logits`.

Works on ids; knows nothing of text, files or search. The last id of a vocabulary is `<pad>`: the decoder starts from it, its
embedding stays zero, and it is not an output class, so the same weights give the same results in every runtime.

Axes: R rows, S source positions, W target positions, D d_model, V target classes (all ids but `<pad>`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.errors import SettingError
from transduce.model.attention import Cache, KeysValues, MultiHeadAttention
from transduce.model.dropout import Dropout
from transduce.model.embeddings import embed, make_embeddings
from transduce.model.layers import DecoderLayer, EncoderLayer, layer_matrices, make_norm, normalise
from transduce.model.model import Matrices, Model
from transduce.model.positions import Positions, check_positions
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Keep, Source, Tokens, keep_earlier, keep_same_sentence, keep_source


@dataclass(frozen=True)
class Memory:
    """The encoder's output, with the sentence that each position belongs to."""

    hidden: Float[Tensor, "R S D"]
    segment: Int[Tensor, "R S"]


@dataclass
class DecoderState:
    """Translations in progress, one per row and all of the same length: what `step` reads and updates."""

    source: list[KeysValues]
    source_keep: Keep
    caches: list[Cache]
    length: int = 0
    sentence: Int[Tensor, "R"] | None = None  # which sentence each row translates; None where rows are never selected

    def select(self, rows: Int[Tensor, "N"]) -> "DecoderState":
        """Keep these rows in this order; this is how beams are duplicated and finished sentences removed."""
        self._select_source(rows)
        for cache in self.caches:
            cache.select(rows)
        return self

    def _select_source(self, rows: Int[Tensor, "N"]) -> None:
        """Beams of a sentence share its source: where they only change places, nothing is copied."""
        before = self.sentence
        self.sentence = rows if before is None else before.index_select(0, rows)
        if before is None or not torch.equal(before, self.sentence):
            self.source = [layer.select(rows) for layer in self.source]
            self.source_keep = self.source_keep.select(rows)


class Transformer(Model):
    """Figure 1 of the paper, with the variants that `TransformerConfig` names."""

    page_width = 128  # positions that the attention kernel covers at once
    config: TransformerConfig

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        self.target_pad = target_size - 1
        self.source_embedding, self.target_embedding, self.output_embedding = make_embeddings(
            source_size, target_size, config.d_model, config.tie
        )
        self.output_bias = nn.Parameter(torch.zeros(self.target_pad)) if config.output_bias else None
        self.source_positions, self.target_positions = Positions(config), Positions(config)
        self.embedding_dropout = Dropout(config.dropout)
        self.encoder: Sequence[EncoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            EncoderLayer(config) for _ in range(config.num_encoder_layers)
        )
        self.decoder: Sequence[DecoderLayer] = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(config) for _ in range(config.num_decoder_layers)
        )
        # With pre-norm, the sum of all sub-layers is not normalised, so each stack ends in another norm.
        pre = config.norm == "pre"
        self.encoder_norm = make_norm(config) if pre else nn.Identity()
        self.decoder_norm = make_norm(config) if pre else nn.Identity()

    def encode(self, source: Source) -> Memory:
        """Run the encoder."""
        assert isinstance(source, Tokens)
        check_positions(source.position, source.width, self.source_positions.limit)
        x = self.source_positions(embed(self.source_embedding, source.ids), source.position, source.width)
        x = self.embedding_dropout(x)
        keep = keep_same_sentence(source.segment, self.config.window)
        for layer in self.encoder:
            x = layer(x, source.position, keep)
        return Memory(normalise(self.encoder_norm, x, source.segment), source.segment)

    def decode(self, target: Tokens, memory: Memory) -> Float[Tensor, "R W D"]:
        """The hidden states from which each next token is predicted, for all positions at once."""
        keep = keep_earlier(target.segment, self.config.window)
        source_keep = keep_source(target.segment, memory.segment)
        x = self.embed_target(target.ids, target.position, target.width)
        for layer in self.decoder:
            x = layer(x, target.position, keep, memory.hidden, source_keep)
        return normalise(self.decoder_norm, x, target.segment)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {
            "encoder": [layer.attention for layer in self.encoder],
            "decoder": [layer.attention for layer in self.decoder],
            "cross": [layer.source_attention for layer in self.decoder],
        }

    def matrices(self) -> Matrices:
        return layer_matrices([*self.encoder, *self.decoder])

    def begin(self, memory: Memory) -> DecoderState:
        """The state before the first target token; the encoder's output is projected here, once."""
        source = [layer.source_attention.keys_values(memory.hidden) for layer in self.decoder]
        keep = keep_source(torch.ones_like(memory.segment[:, :1]), memory.segment)
        rows = memory.segment.shape[0]  # `len` would fix it in an export
        sentence = torch.arange(rows, device=memory.segment.device)
        return DecoderState(source, keep, [Cache() for _ in self.decoder], sentence=sentence)

    def step(self, tokens: Int[Tensor, "R"], state: DecoderState) -> Float[Tensor, "R V"]:
        """Logits of the next token of each row, given its newest one."""
        position = torch.full_like(tokens[:, None], state.length)
        state.length += 1
        x = self.embed_target(tokens[:, None], position, state.length)
        for layer, source, cache in zip(self.decoder, state.source, state.caches, strict=True):
            x = layer(x, position, None, source, state.source_keep, cache)
        return self.project(normalise(self.decoder_norm, x, state.source_keep.query)[:, 0])

    def embed_target(
        self, ids: Int[Tensor, "R W"], position: Int[Tensor, "R W"], longest: int
    ) -> Float[Tensor, "R W D"]:
        """The decoder's input: embeddings plus positions, all below `longest`."""
        check_positions(position, longest, self.target_positions.limit)
        x = embed(self.target_embedding, ids)
        return self.embedding_dropout(self.target_positions(x, position, longest))


def as_transformer(model: Model) -> Transformer:
    """The model, typed as a Transformer; other families are refused."""
    if not isinstance(model, Transformer):
        raise SettingError(f"model.family = {model.config.family}: this needs a Transformer (model.family=transformer)")
    return model
