"""What training a Transformer or a decoder alone costs: floating-point operations, as in the last columns of the paper's Table 2, and activations.

The count of operations has 2 operations per token for each weight of each matrix that the token passes through, times three for the forward
and backward pass, and the products of attention. The paper instead multiplied GPU hours by an estimated rate.
"""

from transduce.config import DecoderConfig, LayersConfig, TransformerConfig
from transduce.config.models import MoeConfig


def transformer_flops(
    config: TransformerConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    per_source, per_target = weights_per_token(config, classes)
    per_key = config.num_heads * (config.key_width + config.value_width)
    seen, seen_earlier = (min(mean_length, reach or mean_length) for reach in _reach(config.window))
    source = per_source + config.num_encoder_layers * per_key * seen
    target = per_target + config.num_decoder_layers * per_key * (seen_earlier + mean_length)
    return 6.0 * (source * source_tokens + target * target_tokens)


def _reach(window: int) -> tuple[int, int]:
    """How many keys a query of the encoder and one of the decoder sees in a window; 0: all."""
    return (2 * window + 1, window + 1) if window else (0, 0)


def weights_per_token(config: TransformerConfig, classes: int) -> tuple[int, int]:
    """How many matrix weights one source token and one target token are multiplied with."""
    d, keys, values = config.d_model, config.num_heads * config.key_width, config.num_heads * config.value_width
    attention = d * (2 * keys + 2 * values)
    feed_forward = d * config.d_ff * (3 if config.activation == "swiglu" else 2)
    queries_and_output, keys_and_values = d * (keys + values), d * (keys + values)
    # The keys and values of the decoder's attention to the source are computed once per source token.
    source = config.num_encoder_layers * (attention + feed_forward) + config.num_decoder_layers * keys_and_values
    target = config.num_decoder_layers * (attention + queries_and_output + feed_forward) + d * classes
    return source, target


def transformer_activations(
    config: TransformerConfig, source_positions: int, target_positions: int, masks: bool
) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits.

    Each sub-layer keeps its input, the inputs of its products and the sum that its norm reads. `masks` says whether dropout
    masks are kept too, as plain PyTorch does; our GPU kernels compute them again from a seed.
    """
    d, kept = config.d_model, masks and config.dropout > 0
    attention, feed_forward, keys_values = kept_per_layer(config, kept)
    source = config.num_encoder_layers * (attention + feed_forward) + config.num_decoder_layers * keys_values
    target = config.num_decoder_layers * (2 * attention - keys_values + feed_forward)
    return (
        source * source_positions + target * target_positions + (1 + kept) * d * (source_positions + target_positions)
    )


def kept_per_layer(config: LayersConfig, kept: bool) -> tuple[int, int, int]:
    """Numbers kept per position by self-attention, by the feed-forward network, and for keys and values alone."""
    d = config.d_model
    width = config.num_heads * (2 * config.key_width + 2 * config.value_width)  # queries, keys, values and their result
    hidden = config.d_ff * {"relu": 1, "swiglu": 4}.get(config.activation, 2)
    keys_values = config.num_heads * (config.key_width + config.value_width)
    return (2 + kept) * d + width, (2 + kept) * d + hidden, keys_values


def decoder_flops(
    config: DecoderConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train a decoder without an encoder; a token attends to half of its context on average."""
    d, keys, values = config.d_model, config.num_heads * config.key_width, config.num_heads * config.value_width
    feed_forward = d * config.d_ff * (3 if config.activation == "swiglu" else 2)
    weights = config.num_decoder_layers * (d * (2 * keys + 2 * values) + feed_forward) + d * classes
    attention = config.num_decoder_layers * (keys + values) * config.context / 2
    return 6.0 * (weights + attention) * target_tokens


def decoder_activations(config: DecoderConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """The same for a decoder without an encoder."""
    kept = masks and config.dropout > 0
    attention, feed_forward, _ = kept_per_layer(config, kept)
    per_position = config.num_decoder_layers * (attention + feed_forward) + (1 + kept) * config.d_model
    return per_position * target_positions


def moe_flops(config: MoeConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float) -> float:
    """As a Transformer, with the feed-forward networks of several experts, and gates and noise for each expert."""
    feed_forward = config.d_model * config.d_ff * (3 if config.activation == "swiglu" else 2)
    more = (config.experts_per_token - 1) * feed_forward + 2 * config.d_model * config.num_experts
    layers = config.num_encoder_layers * source_tokens + config.num_decoder_layers * target_tokens
    return transformer_flops(config, classes, source_tokens, target_tokens, mean_length) + 6.0 * layers * more


def moe_activations(config: MoeConfig, source_positions: int, target_positions: int, masks: bool) -> int:
    """As a Transformer, with slots for the tokens of every expert, their inner layers and what they return."""
    slots = config.experts_per_token * config.expert_capacity
    hidden = config.d_ff * {"relu": 1, "swiglu": 4}.get(config.activation, 2)
    more = round(
        (slots - 1) * hidden + (2 * slots + config.experts_per_token) * config.d_model + 8 * config.num_experts
    )
    layers = config.num_encoder_layers * source_positions + config.num_decoder_layers * target_positions
    return transformer_activations(config, source_positions, target_positions, masks) + layers * more
