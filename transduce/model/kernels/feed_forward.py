"""max(0, x W + b): the bias and the maximum ride in the product, and the backward pass sums the bias's gradient while it
cuts.

Axes: N places, D d_model, F d_ff.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

ROWS, COLUMNS = 16, 256  # of a tile
PROGRAMS = 4 * 132


def relu_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x W + b), with W^T given."""
    return _ReluProduct.apply(x, weight, bias)  # type: ignore[no-any-return]


class _ReluProduct(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = torch._addmm_activation(bias, x.flatten(0, -2), weight.t())
        ctx.save_for_backward(x, weight, hidden)
        return hidden.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        x, weight, hidden = ctx.saved_tensors
        through, of_bias = cut_and_sum(gradient.flatten(0, -2).contiguous(), hidden)
        return (through @ weight).view_as(x), through.t() @ x.flatten(0, -2), of_bias.to(weight.dtype)


def cut_and_sum(gradient: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient, zero where the maximum was 0, and its sum over places."""
    places, width = hidden.shape
    tiles, blocks = triton.cdiv(places, ROWS), triton.cdiv(width, COLUMNS)
    programs = max(1, min(tiles, PROGRAMS // blocks))
    sums = torch.empty(programs, width, dtype=torch.float32, device=hidden.device)
    through = torch.empty_like(gradient)
    _cut_and_sum[(programs, blocks)](
        gradient, hidden, through, sums, N=places, F=width, ROWS=ROWS, COLUMNS=COLUMNS, TURNS=triton.cdiv(tiles, programs),
        num_warps=4,
    )  # fmt: skip
    return through, sums.sum(0)


@triton.jit
def _cut_and_sum(gradient, hidden, through, sums, N, F, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TURNS: tl.constexpr):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(TURNS):
        rows = (turn * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < F)[None, :]
        place = rows[:, None].to(tl.int64) * F + columns[None, :]
        passed = tl.load(hidden + place, inside, 0.0) > 0
        value = tl.where(passed, tl.load(gradient + place, inside, 0.0), 0.0)
        tl.store(through + place, value, inside)
        total += value.to(tl.float32)
    tl.store(sums + tl.program_id(0) * F + columns, tl.sum(total, 0), columns < F)
