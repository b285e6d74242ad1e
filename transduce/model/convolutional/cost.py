"""What training a convolutional model costs: floating-point operations of its matrix products, and activations that it keeps.

As in `transduce/model/cost.py`: two operations for each weight that a token is multiplied with, times three for both passes.
"""

from itertools import pairwise

from transduce.config.models import ByteNetConfig, ConvS2SConfig
from transduce.model.cost import OPERATIONS_PER_WEIGHT


def convs2s_flops(
    config: ConvS2SConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    source = _convolutions(config.d_model, config.encoder_shape)
    units = sum(units for units, _ in config.decoder_shape)
    attention = 2 * units * config.d_model + 2 * len(config.decoder_shape) * config.d_model * mean_length
    target = _convolutions(config.d_model, config.decoder_shape) + attention + config.d_model * classes
    return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)


def _convolutions(d_model: int, shape: list[tuple[int, int]]) -> int:
    """Weights of the convolutions of one side, of the layers around them and of those between different widths."""
    within = sum(2 * kernel * units * units for units, kernel in shape)
    between = sum(a * b for (a, _), (b, _) in pairwise(shape) if a != b)
    return within + between + d_model * (shape[0][0] + shape[-1][0])


def convs2s_activations(config: ConvS2SConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps: the taps and both halves of each convolution, and of attention its ends."""
    kept = masks and config.dropout > 0

    def side(shape: list[tuple[int, int]]) -> int:
        return sum((kernel + 3 + kept) * units for units, kernel in shape) + (3 + kept) * config.d_model

    attention = sum(2 * units + 4 * config.d_model for units, _ in config.decoder_shape)
    return side(config.encoder_shape) * source_positions + (side(config.decoder_shape) + attention) * target_positions


def bytenet_flops(
    config: ByteNetConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded); the length of sentences does not matter."""
    inner = config.d_model // 2
    block = 2 * config.d_model * inner + config.kernel_width * inner * inner
    source = config.num_encoder_layers * block
    target = config.num_decoder_layers * block + config.d_model * (config.d_model + classes)
    return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)


def bytenet_activations(config: ByteNetConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps: of each block the inputs of its norms, products and activations."""
    d, kept = config.d_model, masks and config.dropout > 0
    block = (3 + kept) * d + (5 + config.kernel_width) * (d // 2)
    source, target = config.num_encoder_layers * block, config.num_decoder_layers * block + 4 * d
    return source * source_positions + target * target_positions
