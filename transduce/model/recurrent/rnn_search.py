"""RNNsearch: a bidirectional encoder and a decoder with attention (Bahdanau, Cho and Bengio, "Neural Machine Translation by
Jointly Learning to Align and Translate", ICLR 2015). Sizes of RNNsearch-50 from its appendix A.

    source ids -> embedding -> GRU <-> ----------.
                                       attention -> context
    target ids -> embedding -> GRU -> state -'        |
                       |         '-> GRU (state, context) -> maxout -> logits
                       '------------------------------------'

Differs from the paper: there, one GRU reads the previous token together with the context, which depends on the GRU's
previous state, so training takes a loop over all positions. Here the first GRU reads tokens, its states attend, and the
second GRU reads states and contexts. Each is one call of cuDNN over whole rows. Nematus has the same two transitions in its
conditional GRU.

Axes: R rows, W target positions, D width of a layer, O width of the output layer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transduce.config import RnnConfig
from transduce.model.recurrent.attention import SourceAttention
from transduce.model.recurrent.layers import TENSORS, RecurrentLayer, pack_ids, unpack
from transduce.model.recurrent.recurrent_model import RecurrentMemory, RecurrentModel, RunLayer
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens


class RnnSearch(RecurrentModel):
    """Reads the source in both directions, and attends to it from the first layer of the decoder."""

    config: RnnConfig

    def __init__(self, config: RnnConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        embedded, d = config.embedding_width, config.d_model
        self.encoder: Sequence[RecurrentLayer] = nn.ModuleList(  # type: ignore[assignment]
            RecurrentLayer(config.cell, 2 * d if number else embedded, d, bidirectional=True)
            for number in range(config.num_encoder_layers)
        )
        self.decoder: Sequence[RecurrentLayer] = nn.ModuleList(  # type: ignore[assignment]
            RecurrentLayer(config.cell, d + 2 * d if number else embedded, d)
            for number in range(config.num_decoder_layers)
        )
        self.initial = nn.Linear(d, d * config.num_decoder_layers)
        self.attention = SourceAttention(config.attention, query_width=d, source_width=2 * d, width=d)
        self.readout = nn.Linear(d + 2 * d + embedded, 2 * config.output_width)
        for layer in (*self.encoder, *self.decoder):
            _make_orthogonal(layer.rnn)

    def encode(self, source: Source) -> RecurrentMemory:
        assert isinstance(source, Tokens)
        packed = pack_ids(source)
        x = packed._replace(data=self.embed(self.source_embedding, packed.data))
        for number, layer in enumerate(self.encoder):
            if number:
                x = x._replace(data=self.dropout(x.data))
            x, last = layer.over_packed(x)
        return RecurrentMemory(self._initial(last[0][1]), self.attention.source(unpack(x, source.width), source.real))

    def _initial(self, backward: Float[Tensor, "R D"]) -> list[tuple[Tensor, ...]]:
        """The states of the decoder's layers, from what the encoder knows at the first token after reading backwards."""
        states = self.initial(backward).tanh().unflatten(-1, (len(self.decoder), -1)).transpose(0, 1).contiguous()
        cells = TENSORS[self.config.cell] - 1  # those of LSTMs begin at zero
        return [(state, *[torch.zeros_like(state)] * cells) for state in states]

    def attentions(self) -> dict[str, list[SourceAttention]]:
        return {"encoder": [], "decoder": [], "cross": [self.attention]}

    def hidden(self, ids: Int[Tensor, "R W"], memory: RecurrentMemory, run: RunLayer) -> Float[Tensor, "R W O"]:
        assert memory.source is not None
        embedded = self.embed(self.target_embedding, ids)
        x = run(0, embedded)
        context = self.attention(x, memory.source)
        for number in range(1, len(self.decoder)):
            x = run(number, self.dropout(torch.cat([x, context], -1)))
        pieces = self.readout(torch.cat([x, context, embedded], -1)).chunk(2, -1)
        return self.dropout(torch.maximum(*pieces))


def _make_orthogonal(rnn: nn.RNNBase) -> None:
    """Orthogonal recurrent matrices, one for each gate, as in the paper; everything else as PyTorch has it."""
    for name, weight in rnn.named_parameters():
        if name.startswith("weight_hh"):
            for gate in weight.detach().split(rnn.hidden_size):
                nn.init.orthogonal_(gate)
