"""What training costs: floating-point operations, as in the last columns of the paper's Table 2, and activations.

Here are the parts of the Transformer's layers, and the whole Transformer. Every other family counts its own cost, in the file
of its network or in a `cost.py` of its package. The count of operations has 2 operations per token for each weight of each
matrix that the token passes through, times three for the forward and backward pass, and the products of attention. The paper
instead multiplied GPU hours by an estimated rate.
"""

from dataclasses import dataclass

from transduce.config import LayersConfig, TransformerConfig

OPERATIONS_PER_WEIGHT = 6.0  # for each token: 2 in the forward pass and 4 in the backward pass

# --- operations --------------------------------------------------------------------------------------------------


def attention_weights(config: LayersConfig) -> int:
    """The weights of W^Q, W^K, W^V and W^O."""
    return 2 * config.d_model * config.num_heads * (config.key_width + config.value_width)


def feed_forward_weights(config: LayersConfig) -> int:
    """The weights of a feed-forward network: two matrices, or three with SwiGLU."""
    return config.d_model * config.d_ff * (3 if config.activation == "swiglu" else 2)


def products_per_key(config: LayersConfig) -> int:
    """How many products attention takes for a query and one key: with the key, and with its value."""
    return config.num_heads * (config.key_width + config.value_width)


def transformer_flops(
    config: TransformerConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    per_source, per_target = weights_per_token(config, classes)
    per_key = products_per_key(config)
    seen, seen_earlier = (min(mean_length, reach or mean_length) for reach in _reach(config.window))
    source = per_source + config.num_encoder_layers * per_key * seen
    target = per_target + config.num_decoder_layers * per_key * (seen_earlier + mean_length)
    return OPERATIONS_PER_WEIGHT * (source * source_tokens + target * target_tokens)


def weights_per_token(config: TransformerConfig, classes: int) -> tuple[int, int]:
    """How many matrix weights one source token and one target token are multiplied with."""
    attention, feed_forward = attention_weights(config), feed_forward_weights(config)
    # Of attention to the source, keys and values are computed once per source token: half of its weights.
    keys_values = queries_and_output = attention // 2
    source = config.num_encoder_layers * (attention + feed_forward) + config.num_decoder_layers * keys_values
    target = config.num_decoder_layers * (attention + queries_and_output + feed_forward) + config.d_model * classes
    return source, target


def _reach(window: int) -> tuple[int, int]:
    """How many keys a query of the encoder and one of the decoder sees in a window; 0: all."""
    return (2 * window + 1, window + 1) if window else (0, 0)


# --- activations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptByLayer:
    """How many numbers each part of a layer keeps per position for the backward pass."""

    attention: int
    feed_forward: int
    keys_values: int  # the share of `attention` that attention to the source keeps per source position


def kept_by_layer(config: LayersConfig, masks: bool) -> KeptByLayer:
    """Each sub-layer keeps its input, the inputs of its products and the sum that its norm reads; and `masks` of dropout."""
    ends = (2 + masks) * config.d_model
    queries_to_result = 2 * config.num_heads * (config.key_width + config.value_width)  # queries, keys, values, result
    keys_values = config.num_heads * (config.key_width + config.value_width)
    return KeptByLayer(ends + queries_to_result, ends + hidden_activations(config), keys_values)


def hidden_activations(config: LayersConfig) -> int:
    """How many numbers the inside of a feed-forward network keeps: ReLU needs its result only, others their input too."""
    return config.d_ff * {"relu": 1, "swiglu": 4}.get(config.activation, 2)


def transformer_activations(
    config: TransformerConfig, source_positions: int, target_positions: int, masks: bool
) -> int:
    """How many numbers the forward pass keeps for the backward pass, without the logits.

    `masks` says whether dropout masks are kept too, as plain PyTorch does; our GPU kernels compute them again from a seed.
    """
    d, kept = config.d_model, masks and config.dropout > 0
    layer = kept_by_layer(config, kept)
    source = config.num_encoder_layers * (layer.attention + layer.feed_forward)
    source += config.num_decoder_layers * layer.keys_values
    target = config.num_decoder_layers * (2 * layer.attention - layer.keys_values + layer.feed_forward)
    embeddings = (1 + kept) * d * (source_positions + target_positions)
    return source * source_positions + target * target_positions + embeddings


def stack_activations(config: LayersConfig, layers: int, masks: bool) -> int:
    """The same per position, for a single stack of self-attention and feed-forward layers."""
    kept = masks and config.dropout > 0
    layer = kept_by_layer(config, kept)
    return layers * (layer.attention + layer.feed_forward) + (1 + kept) * config.d_model
