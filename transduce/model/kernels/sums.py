"""Adding up the partial sums of many programs in a fixed order, so that results are deterministic.

Axes: P parts, C columns.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PARTS, COLUMNS, WARPS = 256, 16, 8  # per tile


def sum_of_parts(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the first axis, computed in float32 and returned in this precision."""
    out = torch.empty(parts.shape[1:], dtype=dtype, device=parts.device)
    _sum[(triton.cdiv(out.numel(), COLUMNS),)](
        parts, out, len(parts), out.numel(), PARTS=PARTS, COLUMNS=COLUMNS, num_warps=WARPS
    )
    return out


@triton.jit
def _sum(parts, out, P, C, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, P, PARTS):
        rows = first + tl.arange(0, PARTS)
        total += tl.load(
            parts + rows[:, None] * C + columns[None, :], (rows < P)[:, None] & (columns < C)[None, :], 0.0
        )
    tl.store(out + columns, tl.sum(total, 0).to(out.dtype.element_ty), columns < C)
