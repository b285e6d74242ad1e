"""Head ablation: a copy of a model with some attention heads switched off.

The original model does not change and can keep translating meanwhile.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from transduce.errors import SettingError
from transduce.model.attention import MultiHeadAttention
from transduce.model.model import Model


@dataclass(frozen=True)
class Head:
    """One attention head; `part` is encoder, decoder or cross, and layers and heads are counted from 0."""

    part: str
    layer: int
    number: int


def has_heads(model: Model) -> bool:
    """Whether heads of this model, which must have attention, can be switched off."""
    return any(isinstance(layer, MultiHeadAttention) for layers in model.attentions().values() for layer in layers)


def without_heads(model: Model, heads: Sequence[Head] = ()) -> Model:
    """Copy the model with these heads switched off; all other parameters are shared with the original.

    A head only reaches the rest of the model through its columns of W^O. Setting them to zero switches the head off in every
    engine and kernel, without any code for it there.
    """
    twin = copy.deepcopy(model, {id(shared): shared for shared in (*model.parameters(), *model.buffers())})
    for head in heads:
        _silence(_attention(twin, head), head)
    return twin


def _silence(attention: MultiHeadAttention, head: Head) -> None:
    if not 0 <= head.number < attention.heads:
        raise SettingError(f"{head.part} head {head.number}: the layer has heads 0 to {attention.heads - 1}")
    weight = attention.output.weight.detach().clone()
    weight[:, head.number * attention.d_v : (head.number + 1) * attention.d_v] = 0
    attention.output.weight = nn.Parameter(weight, requires_grad=False)


def _attention(model: Model, head: Head) -> MultiHeadAttention:
    uses = model.attentions()
    if head.part not in uses:
        raise SettingError(f"{head.part!r}: not a part with attention heads; choose one of {', '.join(uses)}")
    layers = uses[head.part]
    if not 0 <= head.layer < len(layers):
        raise SettingError(f"{head.part} layer {head.layer}: the model has layers 0 to {len(layers) - 1}")
    attention = layers[head.layer]
    if not isinstance(attention, MultiHeadAttention):
        raise SettingError(
            f"model.family = {model.config.family}: only heads of multi-head attention can be switched off"
        )
    return attention
