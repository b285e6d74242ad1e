"""Names of parameters in Hugging Face and Marian models, mapped to ours in both directions.

Both lay their sinusoids as all sines and then all cosines where ours alternate, so every axis that is d_model wide
is put in that order on the way there, and back on the way here. Knows names and tensors, no files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import ModelConfig

Tensors = dict[str, Tensor]
# (side, number of the layer from 0, part, weight or bias) -> their names; several where ours is theirs stacked
Naming = Callable[[str, int, str, str], Sequence[str]]

# What reads a vector of d_model takes it along its second axis; what writes one gives it along its first.
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
class Entry:
    """One parameter of ours and what it is there."""

    ours: str
    theirs: Sequence[str]
    axis: int | None  # the one that is d_model wide


def hf_names(side: str, layer: int, part: str, kind: str) -> Sequence[str]:
    """As in `MarianMTModel` and `PegasusForConditionalGeneration`."""
    return [f"model.{side}.layers.{layer}.{name}.{kind}" for name in _HF[part]]


def marian_names(side: str, layer: int, part: str, kind: str) -> Sequence[str]:
    """As in Marian's model.npz, where layers are counted from 1."""
    return [f"{side}_l{layer + 1}_{name}" for name in _MARIAN[part][kind]]


def entries(config: ModelConfig, naming: Naming) -> Iterator[Entry]:
    """Every parameter inside the layers; embeddings, the output's bias and the last norms are not among them."""
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for layer in range(count):
            for part in sorted(READS | WRITES):
                if side == "decoder" or not part.startswith("source_"):
                    yield Entry(
                        f"{side}.{layer}.{part}.weight", naming(side, layer, part, "weight"), int(part in READS)
                    )
                    yield Entry(f"{side}.{layer}.{part}.bias", naming(side, layer, part, "bias"), _bias_axis(part))


def _bias_axis(part: str) -> int | None:
    return 0 if part in WRITES else None


def to_theirs(ours: Tensors, entry: Entry) -> Tensors:
    """One parameter of ours as theirs."""
    tensor = sines_first(ours[entry.ours], entry.axis)
    return dict(zip(entry.theirs, tensor.chunk(len(entry.theirs)), strict=True))


def to_ours(theirs: Callable[[str], Tensor], entry: Entry) -> Tensor:
    """One parameter of ours from theirs, each [out, in] as torch has it."""
    return alternating(torch.cat([theirs(name) for name in entry.theirs]), entry.axis)


def sines_first(tensor: Tensor, axis: int | None) -> Tensor:
    """An axis of alternating sines and cosines, in their order."""
    if axis is None:
        return tensor
    width = tensor.shape[axis]
    return tensor.index_select(axis, torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)]))


def alternating(tensor: Tensor, axis: int | None) -> Tensor:
    """The way back."""
    if axis is None:
        return tensor
    return tensor.index_select(axis, torch.arange(tensor.shape[axis]).view(2, -1).T.flatten())
