"""What training a recurrent model costs: floating-point operations by formula, and activations kept for the backward pass.

Counted as for a Transformer (`transduce/model/cost.py`): 2 operations per token for each weight of each matrix that the token
passes through, times three for both passes. PyTorch's counter sees nothing of cuDNN's layers.
"""

from dataclasses import dataclass

from transduce.config import GnmtConfig, RecurrentConfig, RnnConfig, Seq2seqConfig
from transduce.model.cost import OPERATIONS_PER_WEIGHT
from transduce.model.recurrent.layers import GATES


@dataclass(frozen=True)
class Stack:
    """Recurrent layers of one width, with the width of each one's input; a bidirectional layer is two."""

    cell: str
    width: int
    inputs: list[int]

    @property
    def weights(self) -> int:
        """Weights of matrices that a token is multiplied with."""
        return sum(GATES[self.cell] * self.width * (inputs + self.width) for inputs in self.inputs)

    def activations(self, kept: int) -> int:
        """Numbers kept for each token: the gates and the state of each layer, and `kept` times its input."""
        return sum(kept * inputs + (GATES[self.cell] + 2) * self.width for inputs in self.inputs)


@dataclass(frozen=True)
class Shape:
    """A recurrent model, as far as its cost goes."""

    config: RecurrentConfig
    encoder: Stack
    decoder: Stack
    states: int = 0  # width of the source's states that are attended to; 0: no attention
    query: bool = True  # whether queries are projected
    readout: int = 0  # width of what the output layer is computed from; 0: it is the last layer's state

    def flops(self, classes: int, source_tokens: int, target_tokens: int, mean_length: float) -> float:
        d, out = self.config.d_model, self.config.output_width
        attends = self.states > 0
        first_states = self.readout and d * d * len(self.decoder.inputs) / mean_length
        source = self.encoder.weights + self.states * d + first_states
        attention = attends * (self.query * d * d + (d + self.states) * mean_length)
        target = self.decoder.weights + attention + self.readout * 2 * out + out * classes
        return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)

    def activations(self, source_positions: int, target_positions: int, masks: bool) -> int:
        kept, d = 1 + (masks and self.config.dropout > 0), self.config.d_model
        source = self.encoder.activations(kept) + (self.states and self.states + d)
        attention = self.states and self.states + d
        target = self.decoder.activations(kept) + attention + self.readout + 3 * self.config.output_width
        return source * source_positions + target * target_positions


def shape(config: RecurrentConfig) -> Shape:
    """The shape of a model of any recurrent family."""
    d, embedded = config.d_model, config.embedding_width
    later, before = config.num_encoder_layers - 1, config.num_decoder_layers - 1
    if isinstance(config, RnnConfig):
        encoder = Stack(config.cell, d, 2 * [embedded] + 2 * later * [2 * d])
        decoder = Stack(config.cell, d, [embedded] + before * [3 * d])
        return Shape(config, encoder, decoder, 2 * d, config.attention == "additive", readout=3 * d + embedded)
    if isinstance(config, GnmtConfig):
        encoder = Stack("lstm", d, 2 * [embedded] + [2 * d] + (later - 1) * [d])
        return Shape(config, encoder, Stack("lstm", d, [embedded] + before * [2 * d]), states=d)
    assert isinstance(config, Seq2seqConfig)
    return Shape(
        config, Stack(config.cell, d, [embedded] + later * [d]), Stack(config.cell, d, [embedded] + before * [d])
    )


def recurrent_flops(
    config: RecurrentConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    return shape(config).flops(classes, source_tokens, target_tokens, mean_length)


def recurrent_activations(config: RecurrentConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    return shape(config).activations(source_positions, target_positions, masks)
