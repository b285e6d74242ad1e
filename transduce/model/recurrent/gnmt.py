"""GNMT: deep LSTMs with residual connections and attention (Wu et al., "Google's Neural Machine Translation System", 2016), in
the smaller form that NVIDIA published as GNMT v2 (DeepLearningExamples, PyTorch/Translation/GNMT), from which the sizes and
the initialisation are.

    source ids -> embedding -> LSTM <-> -> LSTM -> LSTM + -> LSTM + ---.
                                                                    attention -> context
    target ids -> embedding -> LSTM -> state ----------------------'      |
                                        '-> LSTM (x, context) -> LSTM (x, context) + -> LSTM (x, context) + -> logits

    +: the layer's input is added to its output; also in the second layer if `first_residual` is 2.

The context of a position goes to every later layer of the decoder at the same position. So each layer, and attention, is
computed for all positions at once.

Differs from the paper, as NVIDIA's model does: 4 layers instead of 8; a state of the first decoder layer attends at its own
position, where the paper takes the state of the position before and gives the context to the first layer as well.

Differs from the paper and from NVIDIA's model: fitted to the data, residual connections begin at the second layer.

Axes: R rows, W target positions, I width of a layer's input, D width of a layer, O width of the output layer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transduce.config import GnmtConfig
from transduce.model.recurrent.attention import SourceAttention
from transduce.model.recurrent.layers import RecurrentLayer, pack_ids, unpack
from transduce.model.recurrent.recurrent_model import RecurrentMemory, RecurrentModel, RunLayer, initialise
from transduce.model.shapes import Float, Int
from transduce.model.tokens import Source, Tokens


class Gnmt(RecurrentModel):
    """The first layer of the encoder reads in both directions; residual connections begin at a later layer."""

    config: GnmtConfig

    def __init__(self, config: GnmtConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        embedded, d = config.embedding_width, config.d_model
        self.encoder: Sequence[RecurrentLayer] = nn.ModuleList(  # type: ignore[assignment]
            [
                RecurrentLayer("lstm", embedded, d, bidirectional=True),
                RecurrentLayer("lstm", 2 * d, d),
                *(RecurrentLayer("lstm", d, d) for _ in range(config.num_encoder_layers - 2)),
            ]
        )
        self.decoder: Sequence[RecurrentLayer] = nn.ModuleList(  # type: ignore[assignment]
            RecurrentLayer("lstm", 2 * d if number else embedded, d) for number in range(config.num_decoder_layers)
        )
        self.attention = SourceAttention("normalised", query_width=d, source_width=d, width=d)
        initialise(self, 0.1 * (1024 / d) ** 0.5)
        nn.init.constant_(self.attention.scale, d**-0.5)
        nn.init.zeros_(self.attention.bias)

    def encode(self, source: Source) -> RecurrentMemory:
        assert isinstance(source, Tokens)
        packed = pack_ids(source)
        x = packed._replace(data=self.embed(self.source_embedding, packed.data))
        for number, layer in enumerate(self.encoder):
            inputs = x._replace(data=self.dropout(x.data)) if number else x
            outputs, _ = layer.over_packed(inputs)
            x = outputs._replace(data=self._with_input(number, outputs.data, x.data))
        hidden = unpack(x, source.width)
        nothing = torch.zeros_like(hidden[:, 0])
        return RecurrentMemory([(nothing, nothing)] * len(self.decoder), self.attention.source(hidden, source.real))

    def hidden(self, ids: Int[Tensor, "R W"], memory: RecurrentMemory, run: RunLayer) -> Float[Tensor, "R W O"]:
        assert memory.source is not None
        x = run(0, self.embed(self.target_embedding, ids))
        context = self.attention(x, memory.source)
        for number in range(1, len(self.decoder)):
            x = self._with_input(number, run(number, self.dropout(torch.cat([x, context], -1))), x)
        return x

    def _with_input(
        self, number: int, outputs: Float[Tensor, "*N D"], x: Float[Tensor, "*N I"]
    ) -> Float[Tensor, "*N D"]:
        """A layer's outputs, with its input added if it has a residual connection; of two directions, their sum."""
        if number + 1 < self.config.first_residual:
            return outputs
        return outputs + x.unflatten(-1, (-1, self.config.d_model)).sum(-2)

    def attentions(self) -> dict[str, list[SourceAttention]]:
        return {"encoder": [], "decoder": [], "cross": [self.attention]}
