"""What training a speech model costs: that of its Transformer, on a quarter of the positions, and of its convolutions."""

from transduce.config import SpeechConfig
from transduce.config.models.speech import SHORTER
from transduce.model.cost import OPERATIONS_PER_WEIGHT, transformer_activations, transformer_flops


def speech_flops(config: SpeechConfig, classes: int, frames: int, target_tokens: int, mean_length: float) -> float:
    """Operations to train on this many frames and tokens."""
    shape, positions = config.transformer, frames // SHORTER
    layers = transformer_flops(shape, classes, positions, target_tokens, mean_length)
    return layers + OPERATIONS_PER_WEIGHT * positions * config.num_encoder_layers * _more_weights(config)


def speech_activations(config: SpeechConfig, frames: int, target_positions: int, masks: bool) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits."""
    positions = frames // SHORTER
    of_front = max(4, config.d_model // 4) * (config.bins // 2) * 2  # for each two frames
    of_layer = 2 * config.d_ff + 8 * config.d_model if config.convolution else 0
    layers = transformer_activations(config.transformer, positions, target_positions, masks)
    return layers + of_front * frames // 2 + config.num_encoder_layers * of_layer * positions


def _more_weights(config: SpeechConfig) -> int:
    """The weights of a Conformer's layer that a Transformer's does not have."""
    d = config.d_model
    return 2 * d * config.d_ff + 3 * d * d + d * config.convolution if config.convolution else 0
