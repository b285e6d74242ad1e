"""Self-attention restricted to a window, computed block by block: its cost grows with n times the window, not with n squared.

The positions are cut into blocks as long as the window. A block of queries needs the keys of its own block and of its
neighbours only. Section 4 of the paper calls this restricted self-attention.

Axes: R rows, H heads, W positions, E width of a head, N blocks of a row, B positions of a block.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from transduce.model.deterministic_attention import deterministic_attention
from transduce.model.shapes import Bool, Float
from transduce.model.tokens import Keep

LONG = 4  # rows of up to this many windows are computed at once, with a mask
OUTSIDE = -1  # the segment of keys before the first and after the last position


def pays_off(keep: Keep) -> bool:
    """Whether the rows are long enough for attention by blocks to be faster than a mask."""
    return 0 < LONG * keep.window < keep.query.shape[1]


def windowed_attention(
    queries: Float[Tensor, "R H W E"],
    keys: Float[Tensor, "R H W E"],
    values: Float[Tensor, "R H W V"],
    keep: Keep,
    scale: float,
    dropout: float = 0.0,
) -> Float[Tensor, "R H W V"]:
    """What attention with `keep.mask` gives, where every query attends within its own row."""
    rows, _, width, _ = queries.shape
    blocks = _blocks(queries, keep.window, 0, 0)
    sides = keep.window, 0 if keep.causal else keep.window
    near_keys, near_values = (_blocks(tensor, keep.window, *sides) for tensor in (keys, values))
    attended = deterministic_attention(blocks, near_keys, near_values, _mask(keep, sides), dropout, scale=scale)
    return attended.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)[:, :, :width]


def _blocks(x: Tensor, block: int, before: int, after: int) -> Tensor:
    """Every block with `before` positions in front of it and `after` positions behind it, [R N, H, before + B + after, E]."""
    rest = -x.shape[2] % block
    padded = pad(x, (0, 0, before, after + rest))
    return padded.unfold(2, before + block + after, block).permute(0, 2, 1, 4, 3).flatten(0, 1)


def _mask(keep: Keep, sides: tuple[int, int]) -> Bool[Tensor, "RN 1 B K"]:
    """`Keep.mask` of each block; queries that fill up the last block are padding, and attend to everything."""
    block, (before, after) = keep.window, sides
    rest = -keep.query.shape[1] % block
    query = pad(keep.query, (0, rest)).unflatten(1, (-1, block)).flatten(0, 1)[:, None, :, None]
    key = pad(keep.key, (before, after + rest), value=OUTSIDE)
    near = key.unfold(1, before + block + after, block).flatten(0, 1)[:, None, None, :]
    band = torch.ones(block, before + block + after, dtype=torch.bool, device=key.device)
    return (query == 0) | ((query == near) & band.triu().tril(before + after))
