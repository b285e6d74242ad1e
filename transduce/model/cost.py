"""The floating-point operations of training a Transformer, as in the last columns of the paper's Table 2.

The count has 2 operations per token for each weight of each matrix that the token passes through, times three for the forward
and backward pass, and the products of attention. The paper instead multiplied GPU hours by an estimated rate.
"""

from transduce.config import TransformerConfig


def transformer_flops(
    config: TransformerConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many tokens (padding excluded) in sentences of about `mean_length`."""
    per_source, per_target = weights_per_token(config, classes)
    attention = config.num_heads * (config.key_width + config.value_width) * mean_length
    source = per_source + config.num_encoder_layers * attention
    target = per_target + 2 * config.num_decoder_layers * attention
    return 6.0 * (source * source_tokens + target * target_tokens)


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
