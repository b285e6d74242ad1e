"""LayerNorm(x + Dropout(z + bias)) and its parts, each in one pass over memory, and their backward passes.

The gradients of gain, shift and bias are summed in the same pass: each program sums a share of the positions.

Axes: N positions, D d_model.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from transduce.model.kernels.randomness import GRAIN, kept, threshold
from transduce.model.kernels.sums import sum_of_parts

ELEMENTS, WARPS = 1024, 2  # per tile
PROGRAMS = 8 * 132  # of a backward pass, at most


@dataclass(frozen=True)
class Normed:
    """The result of a norm (`out`), and what its backward pass needs."""

    total: Tensor
    out: Tensor
    mean: Tensor
    scale: Tensor


def norm(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Normed:
    """LayerNorm(x)."""
    normed = _empty(x, x)
    _residual_forward[_tiles(x)](
        x, x, gain, gain, shift, x, normed.out, normed.mean, normed.scale, x, 0, 1.0, eps,
        ADD=False, DROP=False, NORM=True, num_warps=WARPS, **_shape(x),
    )  # fmt: skip
    return normed


def add(x: Tensor, z: Tensor, bias: Tensor, rate: float, seed: Tensor) -> Tensor:
    """x + Dropout(z + bias)."""
    total = torch.empty_like(x)
    _residual_forward[_tiles(x)](
        x, z, bias, bias, bias, total, x, x, x, seed, threshold(rate), _rescale(rate), 0.0,
        ADD=True, DROP=rate > 0, NORM=False, num_warps=WARPS, **_shape(x),
    )  # fmt: skip
    return total


def add_and_norm(
    x: Tensor, z: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, rate: float, seed: Tensor, eps: float
) -> Normed:
    """LayerNorm(x + Dropout(z + bias))."""
    normed = _empty(torch.empty_like(x), x)
    _residual_forward[_tiles(x)](
        x, z, bias, gain, shift, normed.total, normed.out, normed.mean, normed.scale, seed, threshold(rate),
        _rescale(rate), eps, ADD=True, DROP=rate > 0, NORM=True, num_warps=WARPS, **_shape(x),
    )  # fmt: skip
    return normed


def norm_backward(gradient: Tensor, beside: Tensor, normed: Normed, gain: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x plus `beside`, the gradient that bypasses the norm; and those of gain and shift [2, D]."""
    dx, sums = torch.empty_like(gradient), _sums(gradient)
    _residual_backward[(len(sums),)](
        gradient, normed.total, beside, gain, normed.mean, normed.scale, dx, dx, sums, normed.mean, 0, 1.0,
        ADD=False, DROP=False, NORM=True, num_warps=WARPS, **_shape(gradient, len(sums)),
    )  # fmt: skip
    return dx, sum_of_parts(sums, gain.dtype)[:2]  # the third row is that of the bias: zeros here


def add_backward(gradient: Tensor, bias: Tensor, rate: float, seed: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of z and of the bias; that of x equals `gradient`."""
    dz, sums = torch.empty_like(gradient), _sums(gradient)
    _residual_backward[(len(sums),)](
        gradient, gradient, gradient, bias, gradient, gradient, gradient, dz, sums, seed, threshold(rate),
        _rescale(rate), ADD=True, DROP=rate > 0, NORM=False, num_warps=WARPS, **_shape(gradient, len(sums)),
    )  # fmt: skip
    return dz, sum_of_parts(sums, bias.dtype)[2]  # the first two rows are those of the norm: zeros here


def add_and_norm_backward(
    gradient: Tensor, normed: Normed, gain: Tensor, rate: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and z, and those of gain, shift and bias [3, D]."""
    dx, dz, sums = torch.empty_like(gradient), torch.empty_like(gradient), _sums(gradient)
    _residual_backward[(len(sums),)](
        gradient, normed.total, gradient, gain, normed.mean, normed.scale, dx, dz, sums, seed, threshold(rate),
        _rescale(rate), ADD=True, DROP=rate > 0, NORM=True, num_warps=WARPS, **_shape(gradient, len(sums)),
    )  # fmt: skip
    return dx, dz, sum_of_parts(sums, gain.dtype)


def _empty(total: Tensor, like: Tensor) -> Normed:
    mean, scale = (torch.empty(like.numel() // like.shape[-1], dtype=torch.float32, device=like.device) for _ in "ms")
    return Normed(total, torch.empty_like(like), mean, scale)


def _sums(gradient: Tensor) -> Tensor:
    shape = (min(PROGRAMS, _tiles(gradient)[0]), 3, gradient.shape[-1])
    return torch.empty(shape, dtype=torch.float32, device=gradient.device)


def _tiles(x: Tensor) -> tuple[int]:
    shape = _shape(x)
    return (triton.cdiv(shape["N"], shape["ROWS"]),)


def _shape(x: Tensor, programs: int = 0) -> dict[str, int]:
    positions, width = x.numel() // x.shape[-1], x.shape[-1]
    block = triton.next_power_of_2(width)
    rows = max(1, ELEMENTS // block)
    turns = {"TURNS": triton.cdiv(triton.cdiv(positions, rows), programs)} if programs else {}
    return {"N": positions, "D": width, "BLOCK": block, "ROWS": rows} | turns


def _rescale(rate: float) -> float:
    return GRAIN / (GRAIN - threshold(rate))


@triton.jit(do_not_specialize=["threshold"])
def _residual_forward(
    x, z, bias, gain, shift, total, out, mean, scale, seed, threshold, rescale, eps,
    N, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    ADD: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    known = columns < D
    inside = (rows < N)[:, None] & known[None, :]
    index = rows[:, None] * D + columns[None, :]
    value = tl.load(x + index, inside, 0.0).to(tl.float32)
    if ADD:
        added = tl.load(z + index, inside, 0.0).to(tl.float32) + tl.load(bias + columns, known, 0.0).to(tl.float32)
        if DROP:
            added = tl.where(kept(seed, index, threshold), added * rescale, 0.0)
        rounded = (value + added).to(total.dtype.element_ty)
        tl.store(total + index, rounded, inside)
        value = rounded.to(tl.float32)  # rounded as the backward pass reads it
    if NORM:
        center = tl.sum(value, 1) / D
        away = tl.where(known[None, :], value - center[:, None], 0.0)
        by = 1 / tl.sqrt(tl.sum(away * away, 1) / D + eps)
        tl.store(mean + rows, center, rows < N)
        tl.store(scale + rows, by, rows < N)
        weighted = away * by[:, None] * tl.load(gain + columns, known, 0.0).to(tl.float32)
        shifted = weighted + tl.load(shift + columns, known, 0.0).to(tl.float32)
        tl.store(out + index, shifted.to(out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["threshold"])
def _residual_backward(
    gradient, total, beside, gain, mean, scale, dx, dz, sums, seed, threshold, rescale,
    N, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    ADD: tl.constexpr, DROP: tl.constexpr, NORM: tl.constexpr, TURNS: tl.constexpr,
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
        index = rows[:, None] * D + columns[None, :]
        through = tl.load(gradient + index, inside, 0.0).to(tl.float32)
        if NORM:
            by = tl.load(scale + rows, rows < N, 0.0)[:, None]
            center = tl.load(mean + rows, rows < N, 0.0)[:, None]
            unit = tl.where(inside, (tl.load(total + index, inside, 0.0).to(tl.float32) - center) * by, 0.0)
            of_gain += through * unit
            of_shift += through
            through = through * weight
            along = tl.sum(through * unit, 1)[:, None] / D
            through = (through - tl.sum(through, 1)[:, None] / D - unit * along) * by
            if not ADD:
                through += tl.load(beside + index, inside, 0.0).to(tl.float32)
            tl.store(dx + index, through.to(dx.dtype.element_ty), inside)
        if ADD:
            if DROP:
                through = tl.where(kept(seed, index, threshold), through * rescale, 0.0)
            through = tl.where(inside, through, 0.0)
            tl.store(dz + index, through.to(dz.dtype.element_ty), inside)
            of_bias += through
    out = sums + tl.program_id(0) * 3 * D + columns
    tl.store(out, tl.sum(of_gain, 0), known)
    tl.store(out + D, tl.sum(of_shift, 0), known)
    tl.store(out + 2 * D, tl.sum(of_bias, 0), known)
