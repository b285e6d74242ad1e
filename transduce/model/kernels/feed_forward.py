"""The backward pass of ReLU: the product with W2, masked where the activation was 0, and its sum, in one kernel.

The hidden features are four times d_model wide, so each pass over them that is saved counts.

Axes: N positions, D d_model, F d_ff.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from transduce.model.kernels.sums import sum_of_parts

ROWS, COLUMNS, DEPTH, TOGETHER = 128, 128, 64, 8  # sizes of a tile, and the tiles of rows that share cached columns
WARPS, STAGES = 4, 3


def relu_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x W + b), given W^T: cuBLAS adds the bias and applies the maximum as it writes."""
    return torch._addmm_activation(bias, x, weight.t())


def cut_product(gradient: Tensor, weight: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """`gradient @ weight`, set to zero where `hidden` is zero, and its sum over positions."""
    (positions, depth), width = gradient.shape, weight.shape[1]
    out = torch.empty_like(hidden)
    tiles = triton.cdiv(positions, ROWS), triton.cdiv(width, COLUMNS)
    sums = torch.empty(tiles[0], width, dtype=torch.float32, device=hidden.device)
    _cut_product[(tiles[0] * tiles[1],)](
        TensorDescriptor.from_tensor(gradient, [ROWS, DEPTH]),
        TensorDescriptor.from_tensor(weight, [DEPTH, COLUMNS]),
        TensorDescriptor.from_tensor(hidden, [ROWS, COLUMNS]),
        TensorDescriptor.from_tensor(out, [ROWS, COLUMNS]),
        sums, positions, width, DEPTHS=triton.cdiv(depth, DEPTH), ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH,
        TOGETHER=TOGETHER, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out, sum_of_parts(sums, weight.dtype)


@triton.jit
def _cut_product(
    gradient, weight, hidden, out, sums, N, F,
    DEPTHS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    tiles_down, tiles_across = tl.cdiv(N, ROWS), tl.cdiv(F, COLUMNS)
    group = tl.program_id(0) // (TOGETHER * tiles_across)
    down = min(tiles_down - group * TOGETHER, TOGETHER)
    within = tl.program_id(0) % (TOGETHER * tiles_across)
    tile = group * TOGETHER + within % down
    first_row, first_column = tile * ROWS, within // down * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(DEPTHS):
        left = gradient.load([first_row, turn * DEPTH])
        right = weight.load([turn * DEPTH, first_column])
        total = tl.dot(left, right, total, input_precision="ieee")
    total = tl.where(hidden.load([first_row, first_column]) > 0, total, 0.0)
    out.store([first_row, first_column], total.to(out.dtype))
    columns = first_column + tl.arange(0, COLUMNS)
    tl.store(sums + tile * F + columns, tl.sum(total, 0), columns < F)
