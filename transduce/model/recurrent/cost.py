"""What training a recurrent model costs: floating-point operations by formula, and activations kept for the backward pass.

Counted as for a Transformer (`transduce/model/cost.py`): 2 operations per token for each weight of each matrix that the token
passes through, times three for both passes. PyTorch's counter sees nothing of cuDNN's layers.
"""

from transduce.config import RnnConfig
from transduce.model.recurrent.layers import GATES


def layer_weights(cell: str, inputs: int, width: int) -> int:
    """Weights that a token is multiplied with in one direction of a recurrent layer."""
    return GATES[cell] * width * (inputs + width)


def layer_activations(cell: str, inputs: int, width: int) -> int:
    """Numbers kept for each token: the input, the gates and the state."""
    return inputs + (GATES[cell] + 2) * width


def rnn_flops(config: RnnConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float) -> float:
    d, embedded, cell = config.d_model, config.embedding_width, config.cell
    encoder = 2 * sum(layer_weights(cell, 2 * d if n else embedded, d) for n in range(config.num_encoder_layers))
    decoder = sum(layer_weights(cell, 3 * d if n else embedded, d) for n in range(config.num_decoder_layers))
    keys, queries = 2 * d * d, d * d * (config.attention == "additive")
    attention = (d + 2 * d) * mean_length  # energies and contexts
    readout = (3 * d + embedded) * 2 * config.output_width
    source = encoder + keys + d * d * config.num_decoder_layers / mean_length  # the decoder's first states
    target = decoder + queries + attention + readout + config.output_width * classes
    return 6.0 * (source * source_tokens + target * target_tokens)


def rnn_activations(config: RnnConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    d, embedded, cell = config.d_model, config.embedding_width, config.cell
    kept = 1 + (masks and config.dropout > 0)  # inputs of layers, and their dropout masks
    encoder = sum(
        2 * layer_activations(cell, 0, d) + kept * (2 * d if n else embedded) for n in range(config.num_encoder_layers)
    )
    decoder = sum(
        layer_activations(cell, 0, d) + kept * (3 * d if n else embedded) for n in range(config.num_decoder_layers)
    )
    source = encoder + 2 * d + d  # states and keys
    target = decoder + d + 2 * d + (3 * d + embedded) + (2 + kept) * config.output_width
    return source * source_positions + target * target_positions
