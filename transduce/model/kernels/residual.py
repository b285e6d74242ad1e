"""LayerNorm(x + Dropout(z + bias)), and the same without the norm, in one pass over memory each way.

Axes: N places, D d_model, G programs that each sum a share of the places.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from transduce.model.kernels.randomness import GRAIN, draw_seed, kept, threshold

ELEMENTS = 2048  # of a tile
PROGRAMS = 4 * 132  # of the backward pass: each sums the gradients of gain, shift and bias over its places


def add_and_norm(x: Tensor, z: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, rate: float, eps: float) -> Tensor:
    """LayerNorm(x + Dropout(z + bias)); `bias` is that of the product z, whose gradient falls out on the way."""
    return _AddAndNorm.apply(x, z, bias, gain, shift, rate, eps)  # type: ignore[no-any-return]


def add(x: Tensor, z: Tensor, bias: Tensor, rate: float) -> Tensor:
    """x + Dropout(z + bias)."""
    return _Add.apply(x, z, bias, rate)  # type: ignore[no-any-return]


class _AddAndNorm(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, z: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, rate: float, eps: float
    ) -> Tensor:
        total, normed = torch.empty_like(x), torch.empty_like(x)
        mean, scale = (torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(2))
        seed = draw_seed(x)
        shape = _shape(x)
        _forward[(triton.cdiv(shape["N"], shape["ROWS"]),)](
            x, z, bias, gain, shift, total, normed, mean, scale, seed, threshold(rate), _rescale(rate), eps,
            DROP=rate > 0, NORM=True, num_warps=4, **shape,
        )  # fmt: skip
        ctx.save_for_backward(total, gain, mean, scale, seed)
        ctx.rate = rate
        return normed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        total, gain, mean, scale, seed = ctx.saved_tensors
        dx, dz, sums = _run_backward(gradient.contiguous(), total, gain, mean, scale, seed, ctx.rate, norm=True)
        dgain, dshift, dbias = sums.to(gain.dtype)
        return dx, dz, dbias, dgain, dshift, None, None


class _Add(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, bias: Tensor, rate: float) -> Tensor:
        total, seed = torch.empty_like(x), draw_seed(x)
        shape = _shape(x)
        _forward[(triton.cdiv(shape["N"], shape["ROWS"]),)](
            x, z, bias, x, x, total, x, x, x, seed, threshold(rate), _rescale(rate), 0.0,
            DROP=rate > 0, NORM=False, num_warps=4, **shape,
        )  # fmt: skip
        ctx.save_for_backward(bias, seed)
        ctx.rate = rate
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        bias, seed = ctx.saved_tensors
        gradient = gradient.contiguous()
        _, dz, sums = _run_backward(gradient, gradient, bias, gradient, gradient, seed, ctx.rate, norm=False)
        return gradient, dz, sums[2].to(bias.dtype), None


def _run_backward(
    gradient: Tensor, total: Tensor, gain: Tensor, mean: Tensor, scale: Tensor, seed: Tensor, rate: float, norm: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(total) if norm else gradient
    dz = torch.empty_like(total)
    shape = _shape(total)
    tiles = triton.cdiv(shape["N"], shape["ROWS"])
    programs = min(PROGRAMS, tiles)
    sums = torch.empty(programs, 3, shape["D"], dtype=torch.float32, device=total.device)
    _backward[(programs,)](
        gradient, total, gain, mean, scale, dx, dz, sums, seed, threshold(rate), _rescale(rate),
        DROP=rate > 0, NORM=norm, TURNS=triton.cdiv(tiles, programs), num_warps=4, **shape,
    )  # fmt: skip
    return dx, dz, sums.sum(0)


def _shape(x: Tensor) -> dict[str, int]:
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    return {"N": x.numel() // width, "D": width, "BLOCK": block, "ROWS": max(1, ELEMENTS // block)}


def _rescale(rate: float) -> float:
    return GRAIN / (GRAIN - threshold(rate))


@triton.jit
def _forward(
    x, z, bias, gain, shift, total, normed, mean, scale, seed, threshold, rescale, eps,
    N, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    place = rows[:, None] * D + columns[None, :]
    added = tl.load(z + place, inside, 0.0).to(tl.float32) + tl.load(bias + columns, columns < D, 0.0).to(tl.float32)
    if DROP:
        added = tl.where(kept(seed, place, threshold), added * rescale, 0.0)
    out = (tl.load(x + place, inside, 0.0).to(tl.float32) + added).to(total.dtype.element_ty)
    tl.store(total + place, out, inside)
    if NORM:
        value = out.to(tl.float32)  # as the backward pass will see it
        center = tl.sum(value, 1) / D
        away = tl.where((columns < D)[None, :], value - center[:, None], 0.0)
        by = 1 / tl.sqrt(tl.sum(away * away, 1) / D + eps)
        tl.store(mean + rows, center, rows < N)
        tl.store(scale + rows, by, rows < N)
        weighted = away * by[:, None] * tl.load(gain + columns, columns < D, 0.0).to(tl.float32)
        shifted = weighted + tl.load(shift + columns, columns < D, 0.0).to(tl.float32)
        tl.store(normed + place, shifted.to(normed.dtype.element_ty), inside)


@triton.jit
def _backward(
    gradient, total, gain, mean, scale, dx, dz, sums, seed, threshold, rescale,
    N, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr,
    TURNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    known = columns < D
    of_gain = tl.zeros((ROWS, BLOCK), tl.float32)
    of_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    weight = tl.load(gain + columns, known, 0.0).to(tl.float32)[None, :]
    for turn in range(TURNS):
        rows = (turn * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & known[None, :]
        place = rows[:, None] * D + columns[None, :]
        through = tl.load(gradient + place, inside, 0.0).to(tl.float32)
        if NORM:
            by = tl.load(scale + rows, rows < N, 0.0)[:, None]
            center = tl.load(mean + rows, rows < N, 0.0)[:, None]
            unit = tl.where(inside, (tl.load(total + place, inside, 0.0).to(tl.float32) - center) * by, 0.0)
            of_gain += through * unit
            of_shift += through
            through = through * weight
            along = tl.sum(through * unit, 1)[:, None] / D
            through = (through - tl.sum(through, 1)[:, None] / D - unit * along) * by
            tl.store(dx + place, through.to(dx.dtype.element_ty), inside)
        if DROP:
            through = tl.where(kept(seed, place, threshold), through * rescale, 0.0)
        through = tl.where(inside, through, 0.0)
        tl.store(dz + place, through.to(dz.dtype.element_ty), inside)
        of_bias += through
    out = sums + tl.program_id(0) * 3 * D + columns
    tl.store(out, tl.sum(of_gain, 0), known)
    tl.store(out + D, tl.sum(of_shift, 0), known)
    tl.store(out + 2 * D, tl.sum(of_bias, 0), known)
