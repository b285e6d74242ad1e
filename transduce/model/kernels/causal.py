"""Causal attention in rows of any width, each a single sequence: PyTorch's flash attention on the stacked product.

The attention of a page (`attention.py`) covers 128 positions. Wider rows, such as the context of a language model, come here.
The backward pass is deterministic, so that a resumed run repeats the same bits.

Axes: R rows, W positions, H heads, E width of a head.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.model.deterministic_attention import deterministic_algorithms

_CUDA = torch.ops.aten._scaled_dot_product_flash_attention
_CUDA_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward
_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # for tests
_CPU_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Attended:
    """The result of attention, and what its backward pass needs."""

    heads: Tensor  # [R, H, W, E]
    rest: tuple[Any, ...]

    @property
    def joined(self) -> Tensor:
        """All heads side by side, [R, W, H E]."""
        return self.heads.transpose(1, 2).flatten(-2)


def attend_causally(product: Tensor, heads: int) -> Attended:
    """Every head of softmax(Q K^T / sqrt(E)) V over earlier positions; `product` holds Q, K and V side by side."""
    forward = _CUDA if product.is_cuda else _CPU
    out, *rest = forward(*_split(product, heads), 0.0, True)
    return Attended(out, tuple(rest))


def attend_causally_backward(gradient: Tensor, product: Tensor, attended: Attended, heads: int) -> Tensor:
    """The gradient of the product, from that of the joined heads."""
    inputs = _split(gradient, heads, parts=1)[0], *_split(product, heads), attended.heads
    if product.is_cuda:
        level, *lengths, seed, offset, _ = attended.rest
        with deterministic_algorithms():
            gradients = _CUDA_BACKWARD(*inputs, level, *lengths, 0.0, True, seed, offset)
    else:
        gradients = _CPU_BACKWARD(*inputs, *attended.rest, 0.0, True)
    return torch.cat([one.transpose(1, 2).flatten(-2) for one in gradients], dim=-1)


def _split(x: Tensor, heads: int, parts: int = 3) -> list[Tensor]:
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in x.chunk(parts, -1)]
