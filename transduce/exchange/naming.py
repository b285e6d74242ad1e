"""Names of parameters in Hugging Face and Marian models, mapped to ours in both directions.

Both store all sines before all cosines, where ours alternate, so every axis of width d_model is reordered: to their order
on export, and back on import. Knows names and tensors, no files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import TransformerConfig

Tensors = dict[str, Tensor]
# (side, layer from 0, part, weight or bias) -> their names; several if our parameter stacks several of theirs
Naming = Callable[[str, int, str, str], Sequence[str]]

# Matrices that read a d_model vector have it as their second axis; those that write one have it as their first.
READS = {"attention.stacked", "source_attention.stacked", "feed_forward.inner"}
WRITES = {
    "attention.output", "attention_residual.norm", "source_attention.output", "source_attention_residual.norm",
    "feed_forward.outer", "feed_forward_residual.norm",
}  # fmt: skip

_HF = {
    "attention.stacked": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.output": ("self_attn.out_proj",),
    "attention_residual.norm": ("self_attn_layer_norm",),
    "source_attention.stacked": ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    "source_attention.output": ("encoder_attn.out_proj",),
    "source_attention_residual.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}
_MARIAN: dict[str, dict[str, tuple[str, ...]]] = {
    "attention.stacked": {"weight": ("self_Wq", "self_Wk", "self_Wv"), "bias": ("self_bq", "self_bk", "self_bv")},
    "attention.output": {"weight": ("self_Wo",), "bias": ("self_bo",)},
    "attention_residual.norm": {"weight": ("self_Wo_ln_scale",), "bias": ("self_Wo_ln_bias",)},
    "source_attention.stacked": {
        "weight": ("context_Wq", "context_Wk", "context_Wv"),
        "bias": ("context_bq", "context_bk", "context_bv"),
    },
    "source_attention.output": {"weight": ("context_Wo",), "bias": ("context_bo",)},
    "source_attention_residual.norm": {"weight": ("context_Wo_ln_scale",), "bias": ("context_Wo_ln_bias",)},
    "feed_forward.inner": {"weight": ("ffn_W1",), "bias": ("ffn_b1",)},
    "feed_forward.outer": {"weight": ("ffn_W2",), "bias": ("ffn_b2",)},
    "feed_forward_residual.norm": {"weight": ("ffn_ffn_ln_scale",), "bias": ("ffn_ffn_ln_bias",)},
}


@dataclass(frozen=True)
class LayerParameter:
    """One parameter of our layers, and its name or names in the other toolkit."""

    ours: str
    theirs: Sequence[str]
    axis: int | None  # the axis of width d_model, if there is one


def hf_names(side: str, layer: int, part: str, kind: str) -> Sequence[str]:
    """Names in `MarianMTModel` and `PegasusForConditionalGeneration`."""
    return [f"model.{side}.layers.{layer}.{name}.{kind}" for name in _HF[part]]


def marian_names(side: str, layer: int, part: str, kind: str) -> Sequence[str]:
    """Names in Marian's model.npz, where layers are counted from 1."""
    return [f"{side}_l{layer + 1}_{name}" for name in _MARIAN[part][kind]]


def layer_parameters(config: TransformerConfig, naming: Naming) -> Iterator[LayerParameter]:
    """Every parameter inside the layers, but not embeddings, the output bias and the final norms."""
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for layer in range(count):
            for part in sorted(READS | WRITES):
                if side == "decoder" or not part.startswith("source_"):
                    yield LayerParameter(
                        f"{side}.{layer}.{part}.weight", naming(side, layer, part, "weight"), int(part in READS)
                    )
                    yield LayerParameter(
                        f"{side}.{layer}.{part}.bias", naming(side, layer, part, "bias"), _bias_axis(part)
                    )


def _bias_axis(part: str) -> int | None:
    return 0 if part in WRITES else None


def to_theirs(ours: Tensors, parameter: LayerParameter) -> Tensors:
    """Convert one of our parameters to theirs."""
    tensor = sines_first(ours[parameter.ours], parameter.axis)
    return dict(zip(parameter.theirs, tensor.chunk(len(parameter.theirs)), strict=True))


def to_ours(theirs: Callable[[str], Tensor], parameter: LayerParameter) -> Tensor:
    """Convert theirs, each [out, in] as in torch, to one of our parameters."""
    return alternating(torch.cat([theirs(name) for name in parameter.theirs]), parameter.axis)


def sines_first(tensor: Tensor, axis: int | None) -> Tensor:
    """Reorder an axis from alternating sines and cosines to all sines before all cosines."""
    if axis is None:
        return tensor
    width = tensor.shape[axis]
    return tensor.index_select(axis, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))


def alternating(tensor: Tensor, axis: int | None) -> Tensor:
    """The inverse of `sines_first`."""
    if axis is None:
        return tensor
    return tensor.index_select(axis, torch.arange(tensor.shape[axis]).view(2, -1).T.flatten())
