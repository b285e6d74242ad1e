"""PyTorch's attention with deterministic gradients: the same inputs give the same bits.

On a GPU, the backward passes of PyTorch's fast attention add up in whatever order the hardware finishes, unless deterministic
algorithms are on. Turning them on for a whole program would refuse operations that have none, so they are on here only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def deterministic_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """`scaled_dot_product_attention`, deterministic on GPUs too."""
    attend = partial(scaled_dot_product_attention, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale)
    if not (queries.is_cuda and torch.is_grad_enabled()):
        return attend(queries, keys, values)
    result: Tensor = _Deterministic.apply(attend, queries, keys, values)
    return result


class _Deterministic(torch.autograd.Function):
    """A function of tensors whose forward and backward passes both use deterministic algorithms."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.inputs = [tensor.detach().requires_grad_() for tensor in inputs]
        with torch.enable_grad(), deterministic_algorithms():
            ctx.output = function(*ctx.inputs)
        return ctx.output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        with deterministic_algorithms():
            return None, *torch.autograd.grad(ctx.output, ctx.inputs, gradients)


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Choose deterministic kernels. Not `torch.use_deterministic_algorithms`, which imports PyTorch's compiler.

    With `warn_only=True`, attention would only warn and not be deterministic. New memory is not filled, since kernels write all
    of it.
    """
    before = torch._C._get_deterministic_algorithms(), torch._C._get_deterministic_algorithms_warn_only()
    filled = torch._C._get_deterministic_fill_uninitialized_memory()
    torch._C._set_deterministic_algorithms(True, warn_only=False)
    torch._C._set_deterministic_fill_uninitialized_memory(False)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])
        torch._C._set_deterministic_fill_uninitialized_memory(filled)
