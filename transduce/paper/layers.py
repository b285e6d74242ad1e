"""The layers of the paper's Table 1: self-attention, recurrent, convolutional, and self-attention restricted to neighbours.

Plain layers of `torch.nn` as Table 1 compares them, each with its own count of operations. No masks, no dropout, no norms.

Axes: B rows, N positions, D width, H heads, E width of a head, R neighbours on each side, K kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

HEAD = 64  # the paper's d_k; narrower layers have one head
KERNEL = 3
NEIGHBOURS = 64  # on each side


class SelfAttention(nn.Module):
    """Every position sees every position; torch's fused attention, which keeps no [N, N] matrix where it need not."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.heads = max(1, d // HEAD)
        self.stacked, self.output = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (self.split(part) for part in self.stacked(x).chunk(3, dim=-1))
        return self.output(self.attend(queries, keys, values).transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        """[B, N, D] -> [B, H, N, E]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return scaled_dot_product_attention(queries, keys, values)


class RestrictedSelfAttention(SelfAttention):
    """Every position sees R neighbours on each side.

    Blocks of R queries meet the 3 R keys of their own block and its two neighbours, so nothing outside is computed.
    """

    def __init__(self, d: int, neighbours: int = NEIGHBOURS) -> None:
        super().__init__(d)
        self.neighbours = neighbours

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, _, length, _ = queries.shape
        r = min(self.neighbours, length)
        fill = -length % r
        blocks = pad(queries, (0, 0, 0, fill)).flatten(0, 1).unflatten(1, (-1, r))
        near_keys, near_values = (beside(x.flatten(0, 1), r, fill) for x in (keys, values))
        keep = near(blocks.shape[1], r, length, queries.device)
        mixed = scaled_dot_product_attention(blocks, near_keys, near_values, attn_mask=keep)
        return mixed.flatten(1, 2)[:, :length].unflatten(0, (rows, -1))


def beside(x: Tensor, r: int, fill: int) -> Tensor:
    """[B H, N, E] -> [B H, blocks, 3 R, E]: the block of each query and the blocks beside it."""
    return pad(x, (0, 0, r, r + fill)).unfold(1, 3 * r, r).transpose(-1, -2)


def near(blocks: int, r: int, length: int, device: torch.device) -> Tensor:
    """[blocks, R, 3 R]: which keys each query may attend to; padding queries may see their own block."""
    query = torch.arange(blocks * r, device=device).view(blocks, r, 1)
    key = (torch.arange(blocks, device=device) * r - r).view(blocks, 1, 1) + torch.arange(3 * r, device=device)
    return ((query - key).abs() <= r) & (key >= 0) & ((key < length) | (query >= length))


class Recurrent(nn.Module):
    """An LSTM: position by position, from left to right."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, bias=False, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Convolution(nn.Module):
    """A convolution over positions, which sees (K - 1) / 2 dilated neighbours on each side."""

    def __init__(self, d: int, kernel: int = KERNEL, dilation: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(d, d, kernel, dilation=dilation, padding="same", bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


# --- operations ---------------------------------------------------------------------------------------------------


def attention_operations(n: int, d: int) -> int:
    return 8 * n * d**2 + 4 * n**2 * d


def restricted_operations(n: int, d: int) -> int:
    r = min(NEIGHBOURS, n)
    filled = r * -(-n // r)  # whole blocks
    return 8 * n * d**2 + 4 * filled * 3 * r * d


def recurrent_operations(n: int, d: int) -> int:
    return 16 * n * d**2  # four gates, each a product with the input and one with the last state


def convolution_operations(n: int, d: int) -> int:
    return 2 * KERNEL * n * d**2


@dataclass(frozen=True)
class Kind:
    """A row of Table 1."""

    name: str
    make: Callable[[int], nn.Module]  # of a width
    operations: Callable[[int, int], int]  # of a sentence: n, d
    paper: tuple[str, str, str]  # complexity per layer, sequential operations, maximum path length


KINDS = [
    Kind("self-attention", SelfAttention, attention_operations, ("n² d", "1", "1")),
    Kind("recurrent", Recurrent, recurrent_operations, ("n d²", "n", "n")),
    Kind("convolutional", Convolution, convolution_operations, ("k n d²", "1", "log_k n")),
    Kind("restricted", RestrictedSelfAttention, restricted_operations, ("r n d", "1", "n / r")),
]
