"""A model with some of its heads switched off: what is a head good for?

The model it is made from is left as it is, and goes on translating for others meanwhile.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from transduce.errors import SettingError
from transduce.model.attention import MultiHeadAttention
from transduce.model.model import Model
from transduce.model.taps import attentions


@dataclass(frozen=True)
class Head:
    """One head of a layer, both counted from 0, of the encoder, the decoder, or the decoder's attention to the source."""

    part: str
    layer: int
    number: int


def without_heads(model: Model, heads: Sequence[Head] = ()) -> Model:
    """A model of its own, with the same parameters, in which these heads output nothing.

    A head's output meets its columns of W^O and nothing else, so with zeros there it is off for every engine and
    kernel, and the ordinary path knows nothing of it.
    """
    twin = copy.deepcopy(model, {id(shared): shared for shared in (*model.parameters(), *model.buffers())})
    for head in heads:
        _silence(_attention(twin, head), head)
    return twin


def _silence(attention: MultiHeadAttention, head: Head) -> None:
    if not 0 <= head.number < attention.heads:
        raise SettingError(f"{head.part} head {head.number}: there are heads 0 to {attention.heads - 1}")
    weight = attention.output.weight.detach().clone()
    weight[:, head.number * attention.d_v : (head.number + 1) * attention.d_v] = 0
    attention.output.weight = nn.Parameter(weight, requires_grad=False)


def _attention(model: Model, head: Head) -> MultiHeadAttention:
    uses = attentions(model)
    if head.part not in uses:
        raise SettingError(f"{head.part!r}: heads are those of {', '.join(uses)}")
    layers = uses[head.part]
    if not 0 <= head.layer < len(layers):
        raise SettingError(f"{head.part} layer {head.layer}: there are layers 0 to {len(layers) - 1}")
    return layers[head.layer]
