"""The input of a convolution: each position with its neighbours in the same sentence.

A convolution is then one matrix product with the vectors of all its taps side by side. Taps outside the sentence are zero, whether
they lie outside the row, in padding or, in a packed row, in another sentence.

Axes: R rows, W positions, D features, K taps.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.shapes import Float, Int

OUTSIDE = -1  # the segment of positions before and after the row


def with_neighbours(x: Float[Tensor, "R W D"], segment: Int[Tensor, "R W"], offsets: range) -> Float[Tensor, "R W KD"]:
    """The vectors at these offsets from each position, side by side."""
    if offsets == range(1):
        return x
    before, after = max(0, -offsets[0]), max(0, offsets[-1])
    rows, segments = pad(x, (0, 0, before, after)), pad(segment, (before, after), value=OUTSIDE)
    return torch.cat([_tap(rows, segments, segment, before + offset) for offset in offsets], dim=-1)


def _tap(rows: Tensor, segments: Tensor, segment: Tensor, begin: int) -> Tensor:
    columns = slice(begin, begin + segment.shape[1])
    return rows[:, columns].masked_fill((segments[:, columns] != segment)[..., None], 0)


def centred(width: int, dilation: int = 1) -> range:
    """The offsets of an encoder's taps: as many before a position as after it, or one more before."""
    first = -(width // 2) * dilation
    return range(first, first + width * dilation, dilation)


def causal(width: int, dilation: int = 1) -> range:
    """The offsets of a decoder's taps: the position itself and those before it."""
    return range((1 - width) * dilation, 1, dilation)


class Past:
    """The last inputs of a causal convolution, in search: as many as its taps reach back, zeros before the first token."""

    def __init__(self, offsets: range) -> None:
        self.offsets = offsets
        self.inputs: Tensor | None = None  # [R, reach, D]

    def append(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R KD"]:
        """Add the newest input; returns the inputs at all taps side by side, as `with_neighbours` does."""
        if len(self.offsets) == 1:
            return x
        reach = -self.offsets[0]
        past = x.new_zeros(len(x), reach, x.shape[1]) if self.inputs is None else self.inputs
        inputs = torch.cat([past, x[:, None]], dim=1)
        self.inputs = inputs[:, 1:]
        return inputs[:, :: self.offsets.step].flatten(1)

    def select(self, rows: Int[Tensor, "N"]) -> None:
        if self.inputs is not None:
            self.inputs = self.inputs.index_select(0, rows)
