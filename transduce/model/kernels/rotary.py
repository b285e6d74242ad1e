"""Rotary positions: queries and keys are rotated in place, in the product that holds queries, keys and values side by side.

The plain form is `transduce/model/positions.py::rotate`.

Axes: R rows, W positions, H heads, E width of a head.
"""

import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # positions of a program
LOG2_BASE: tl.constexpr = tl.constexpr(13.287712379549449)  # log2(10000)


def rotate_product(product: Tensor, position: Tensor, heads: int, back: bool = False) -> None:
    """Rotate each pair (2i, 2i+1) of every query and key by its position times the pair's frequency; `back` undoes it.

    `product` is [R, W, 3 H E]; its last third, the values, stays as it is. The gradient of a rotation is the rotation back.
    """
    count = position.numel()
    _rotate[(triton.cdiv(count, ROWS),)](
        product, position.contiguous(), count, product.shape[-1], SIGN=-1 if back else 1,
        HEADS=heads, WIDTH=product.shape[-1] // (3 * heads), ROWS=ROWS,
    )  # fmt: skip


@triton.jit
def _rotate(
    product, position, N, STRIDE,
    SIGN: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.load(position + row, mask=row < N, other=0).to(tl.float64)
    pair = tl.arange(0, WIDTH // 2).to(tl.float64)
    # In double precision until the angle is known, as the plain form.
    angle = (at[:, None] * tl.exp2(pair * (-2 * LOG2_BASE / WIDTH))[None, :]).to(tl.float32)
    cosine, sine = tl.cos(angle), tl.sin(angle) * SIGN
    first = product + row[:, None] * STRIDE + tl.arange(0, WIDTH)[None, :]
    real = (row < N)[:, None]
    for head in range(2 * HEADS):
        cells = first + head * WIDTH
        pairs = tl.load(cells, mask=real, other=0.0).to(tl.float32).reshape(ROWS, WIDTH // 2, 2)
        even, odd = tl.split(pairs)
        turned = tl.join(even * cosine - odd * sine, even * sine + odd * cosine).reshape(ROWS, WIDTH)
        tl.store(cells, turned.to(product.dtype.element_ty), mask=real)
