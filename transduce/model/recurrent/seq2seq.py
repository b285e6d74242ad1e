"""The encoder-decoder without attention (Sutskever, Vinyals and Le, "Sequence to Sequence Learning with Neural Networks",
NIPS 2014): one vector per layer represents the whole sentence. Sizes and initialisation from section 3.4 of the paper.

    source ids, backwards -> embedding -> LSTM -> ... -> LSTM
                                           | last states  |
    target ids ------------> embedding -> LSTM -> ... -> LSTM -> logits

Axes: R rows, W target positions, O width of the output layer.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from transduce.config import Seq2seqConfig
from transduce.model.recurrent.layers import RecurrentLayer, pack_ids, reversed_rows
from transduce.model.recurrent.recurrent_model import RecurrentMemory, RecurrentModel, RunLayer, initialise
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens


class Seq2seq(RecurrentModel):
    """Each layer of the decoder begins in the last state of the same layer of the encoder."""

    config: Seq2seqConfig

    def __init__(self, config: Seq2seqConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.encoder: Sequence[RecurrentLayer] = self._stack(config.num_encoder_layers)
        self.decoder: Sequence[RecurrentLayer] = self._stack(config.num_decoder_layers)
        initialise(self, 0.08 * (1000 / config.d_model) ** 0.5)

    def _stack(self, layers: int) -> Sequence[RecurrentLayer]:
        config = self.config
        widths = [config.embedding_width, *[config.d_model] * (layers - 1)]
        return nn.ModuleList(RecurrentLayer(config.cell, width, config.d_model) for width in widths)  # type: ignore[return-value]

    def encode(self, source: Source) -> RecurrentMemory:
        assert isinstance(source, Tokens)
        packed = pack_ids(reversed_rows(source) if self.config.reverse_source else source)
        x = packed._replace(data=self.embed(self.source_embedding, packed.data))
        states = []
        for number, layer in enumerate(self.encoder):
            if number:
                x = x._replace(data=self.dropout(x.data))
            x, last = layer.over_packed(x)
            states.append(tuple(tensor[0] for tensor in last))
        return RecurrentMemory(states)

    def hidden(self, ids: Int[Tensor, "R W"], memory: RecurrentMemory, run: RunLayer) -> Float[Tensor, "R W O"]:
        x = self.embed(self.target_embedding, ids)
        for number in range(len(self.decoder)):
            x = self.dropout(run(number, x))
        return x
