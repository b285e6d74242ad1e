"""The floating-point operations of training a Transformer, as in the last columns of the paper's Table 2.

Counted, not timed: 2 operations for each weight of a matrix and token that meets it, three times over for forward and
backward, and the products of attention. The paper multiplied GPU hours by a rate instead.
"""

from transduce.config import ModelConfig


def transformer_flops(
    config: ModelConfig, classes: int, source_tokens: int, target_tokens: int, mean_length: float
) -> float:
    """Operations to train on this many real tokens of sentences of about `mean_length`."""
    per_source, per_target = weights_met(config, classes)
    attention = config.num_heads * (config.key_width + config.value_width) * mean_length
    source = per_source + config.num_encoder_layers * attention
    target = per_target + 2 * config.num_decoder_layers * attention
    return 6.0 * (source * source_tokens + target * target_tokens)


def weights_met(config: ModelConfig, classes: int) -> tuple[int, int]:
    """Matrix weights that one source token and one target token meet on their way."""
    d, keys, values = config.d_model, config.num_heads * config.key_width, config.num_heads * config.value_width
    attention = d * (2 * keys + 2 * values)
    feed_forward = d * config.d_ff * (3 if config.activation == "swiglu" else 2)
    queries_and_output, keys_and_values = d * (keys + values), d * (keys + values)
    # The keys and values of the decoder's attention to the source are computed once per source token.
    source = config.num_encoder_layers * (attention + feed_forward) + config.num_decoder_layers * keys_and_values
    target = config.num_decoder_layers * (attention + queries_and_output + feed_forward) + d * classes
    return source, target
