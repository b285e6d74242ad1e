"""Converts our weights to the `TransformerSpec` of CTranslate2. Sees arrays and settings; reads and writes no files, needs no torch.

`<pad>` is no token there: the last row of every embedding is left out, and decoding starts from a zero vector, which
is what our `<pad>` is embedded as. Sinusoids are written out as a table, since theirs are laid out otherwise.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.checkpoint import Arrays
from transduce.config import TransformerConfig
from transduce.config.support import ANY, DROPOUT, SIZES, Supports
from transduce.text import Vocabularies

POSITIONS = 2_048  # of the table of sinusoids: the longest output, counting `</s>`
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}

Floats = NDArray[np.float32]


SUPPORTS = Supports(
    TransformerConfig,
    {
        **SIZES,
        **DROPOUT,
        "norm": ("post", "pre"),
        "positions": ("sinusoidal", "marian", "learned", "rotary", "none"),
        "activation": tuple(ACTIVATIONS),
        "output_bias": ANY,
        "tie": ("all", "target", "none"),
    },
)


def refusal(config: TransformerConfig) -> str:
    """Why CTranslate2 cannot run this model, or nothing."""
    if setting := SUPPORTS.refusal(config):
        return f"it does not support {setting}"
    if config.heads_fill_d_model:
        return ""
    return f"model.d_k = {config.key_width} and model.d_v = {config.value_width}: it supports only d_model / num_heads"


def longest_output(config: TransformerConfig) -> int:
    """How many positions the decoder has, `</s>` counted."""
    return config.max_positions if config.positions == "learned" else POSITIONS


# --- what the weights are called ---------------------------------------------------------------------------------


def expected_shapes(config: TransformerConfig, source_size: int, target_size: int) -> dict[str, list[int]]:
    """The name and shape of every parameter of a model that is not refused."""
    shapes = {"source_embedding.weight": [source_size, config.d_model]}
    if config.tie != "all":
        shapes["target_embedding.weight"] = [target_size, config.d_model]
    if config.tie == "none":
        shapes["output_embedding.weight"] = [target_size, config.d_model]
    if config.output_bias:
        shapes["output_bias"] = [target_size - 1]
    for side in ("source", "target"):
        if config.positions == "learned":
            shapes[f"{side}_positions.table"] = [config.max_positions, config.d_model]
    for stack, layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        if config.norm == "pre":
            shapes |= _norm_shapes(f"{stack}_norm", config.d_model)
        for number in range(layers):
            shapes |= _layer_shapes(f"{stack}.{number}", stack, config)
    return shapes


def _layer_shapes(name: str, stack: str, config: TransformerConfig) -> dict[str, list[int]]:
    width, inner = config.d_model, config.d_ff
    shapes: dict[str, list[int]] = {}
    for attention in ["attention"] if stack == "encoder" else ["attention", "source_attention"]:
        shapes |= _linear_shapes(f"{name}.{attention}.stacked", 3 * width, width)
        shapes |= _linear_shapes(f"{name}.{attention}.output", width, width)
        shapes |= _norm_shapes(f"{name}.{attention}_residual.norm", width)
    shapes |= _linear_shapes(f"{name}.feed_forward.inner", inner, width)
    shapes |= _linear_shapes(f"{name}.feed_forward.outer", width, inner)
    return shapes | _norm_shapes(f"{name}.feed_forward_residual.norm", width)


def _linear_shapes(name: str, rows: int, columns: int) -> dict[str, list[int]]:
    return {f"{name}.weight": [rows, columns], f"{name}.bias": [rows]}


def _norm_shapes(name: str, width: int) -> dict[str, list[int]]:
    return {f"{name}.weight": [width], f"{name}.bias": [width]}


# --- the description ---------------------------------------------------------------------------------------------


def make_spec(arrays: Arrays, config: TransformerConfig, vocabularies: Vocabularies) -> Any:
    """CTranslate2's `TransformerSpec` with our weights, in float32."""
    specs = _import_specs()
    like: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation]],
    }
    if config.positions == "rotary":
        like |= {"rotary_dim": config.key_width, "rotary_interleave": True}  # pairs of neighbours, as ours
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **like),
        specs.TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, **like),
    )
    weights = _Weights(arrays)
    _set_ends(spec, weights, config)
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(spec, stack).layer):
            _set_layer(layer, weights, f"{stack}.{number}", stack)
    spec.register_source_vocabulary(vocabularies.source.pieces(range(vocabularies.source.pad)))
    spec.register_target_vocabulary(vocabularies.target.pieces(range(vocabularies.target.pad)))
    spec.config.bos_token = spec.config.decoder_start_token = spec.config.eos_token  # there is no other to start from
    spec.validate()
    return spec


class _Weights:
    """Copies by name: quantizing happens in place, and arrays of a file may not be written to."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def __getitem__(self, name: str) -> Floats:
        return np.array(self.arrays[name], np.float32)

    def first(self, *names: str) -> Floats:
        """The first of these that there is: tied matrices go by one name."""
        return next(self[name] for name in names if name in self.arrays)


def _set_ends(spec: Any, weights: _Weights, config: TransformerConfig) -> None:
    """Embeddings, positions, the norms that end pre-norm stacks, and the projection."""
    source, target = (
        weights["source_embedding.weight"],
        weights.first("target_embedding.weight", "source_embedding.weight"),
    )
    output = weights.first("output_embedding.weight", "target_embedding.weight", "source_embedding.weight")
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source[:-1], target[:-1]
    spec.decoder.projection.weight = output[:-1]
    if config.output_bias:
        spec.decoder.projection.bias = weights["output_bias"]
    spec.decoder.start_from_zero_embedding = True
    spec.encoder.position_encodings.encodings = _positions(weights, config, "source")
    if config.positions != "rotary":  # a decoder with rotations has no table; an encoder has one and does not use it
        spec.decoder.position_encodings.encodings = _positions(weights, config, "target")
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, weights, "encoder_norm")
        _set_norm(spec.decoder.layer_norm, weights, "decoder_norm")


def _positions(weights: _Weights, config: TransformerConfig, side: str) -> Floats:
    if config.positions == "learned":
        return weights[f"{side}_positions.table"]
    if config.positions in ("rotary", "none"):  # rotations happen inside attention
        return np.zeros((POSITIONS, config.d_model), np.float32)
    return sinusoids(POSITIONS, config.d_model, config.d_model - (2 if config.positions == "marian" else 0))


def sinusoids(positions: int, width: int, last: int) -> Floats:
    """The table of `model/positions.py`: sine and cosine alternate, the angle in double precision until it is known."""
    exponent = np.arange(0, width, 2, dtype=np.float64) / last
    angle = (np.arange(positions)[:, None] / 10_000.0**exponent).astype(np.float32)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(positions, width)


def _set_layer(layer: Any, weights: _Weights, name: str, stack: str) -> None:
    _set_norm(layer.self_attention.layer_norm, weights, f"{name}.attention_residual.norm")
    stacked, output = layer.self_attention.linear
    _set_linear(stacked, weights, f"{name}.attention.stacked")
    _set_linear(output, weights, f"{name}.attention.output")
    if stack == "decoder":
        _set_source_attention(layer.attention, weights, f"{name}.source_attention")
    _set_norm(layer.ffn.layer_norm, weights, f"{name}.feed_forward_residual.norm")
    _set_linear(layer.ffn.linear_0, weights, f"{name}.feed_forward.inner")
    _set_linear(layer.ffn.linear_1, weights, f"{name}.feed_forward.outer")


def _set_source_attention(attention: Any, weights: _Weights, name: str) -> None:
    """Queries come from the decoder, keys and values from the encoder: two matrices of our one."""
    queries, keys_values, output = attention.linear
    weight, bias = weights[f"{name}.stacked.weight"], weights[f"{name}.stacked.bias"]
    width = len(bias) // 3
    queries.weight, queries.bias = weight[:width], bias[:width]
    keys_values.weight, keys_values.bias = weight[width:], bias[width:]
    _set_linear(output, weights, f"{name}.output")
    _set_norm(attention.layer_norm, weights, f"{name}_residual.norm")


def _set_linear(linear: Any, weights: _Weights, name: str) -> None:
    linear.weight, linear.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _set_norm(norm: Any, weights: _Weights, name: str) -> None:
    norm.gamma, norm.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


# --- their module ------------------------------------------------------------------------------------------------


def _import_specs() -> ModuleType:
    """`ctranslate2.specs`, imported as if torch were not installed: it takes arrays too, and importing torch takes a second.

    The module is then removed from `sys.modules`, so that a later import elsewhere gets the complete one.
    """
    if "torch" in sys.modules or "ctranslate2.specs" in sys.modules:
        import ctranslate2.specs

        return ctranslate2.specs
    with _as_if_missing("torch"):
        import ctranslate2.specs

        specs: ModuleType = ctranslate2.specs
    for name in [name for name in sys.modules if name.startswith("ctranslate2.specs")]:
        del sys.modules[name]
    vars(ctranslate2).pop("specs", None)
    return specs


@contextmanager
def _as_if_missing(package: str) -> Iterator[None]:
    """Make imports of this package fail inside the context."""
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
