"""The plain PyTorch forms of the decoding kernels: the oracle of their tests, and what runs without a GPU.

Axes: B slots, W beams, R = B W rows, T positions of a cache, S positions of a source, D d_model.
"""

import torch
from torch import Tensor


def attend_to_past(
    product: Tensor, bias: Tensor, keys: Tensor, values: Tensor, table: Tensor, position: Tensor, heads: int
) -> Tensor:
    """Write each row's new keys and values at the position of its slot, and attend to all positions up to it: [R, D]."""
    beams, row = len(product) // len(position), torch.arange(len(product), device=product.device)
    now = position.repeat_interleave(beams)
    query, key, value = (product + bias).to(keys.dtype).chunk(3, -1)
    keys[row, now], values[row, now] = key, value
    positions = torch.arange(keys.shape[1], device=keys.device)
    rows = torch.where(positions == now[:, None], row[:, None], table.long())
    return _attend(query, keys[rows, positions], values[rows, positions], positions <= now[:, None], heads)


def attend_to_source(queries: Tensor, source: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Attend with each row's query to the first `lengths` positions of its slot's source: [R, D]."""
    beams, positions = len(queries) // len(lengths), torch.arange(source.shape[1], device=source.device)
    keys, values = source.repeat_interleave(beams, 0).chunk(2, -1)
    return _attend(queries, keys, values, positions < lengths.repeat_interleave(beams)[:, None], heads)


def _attend(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, heads: int) -> Tensor:
    """Attention of [R, D] to [R, T, D] where `keep` [R, T]; a row without a position to attend to gets zeros."""
    query, keys, values = (x.float().unflatten(-1, (heads, -1)) for x in (query, keys, values))
    scores = torch.einsum("rhe,rthe->rht", query, keys) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~keep[:, None], -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("rht,rthe->rhe", weights, values).flatten(1).to(query.dtype)


def best(logits: Tensor, classes: int, count: int, forced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, and the log-probability of its forced class."""
    log_probs = logits[:, :classes].float().log_softmax(-1).clamp_(max=0)
    values, ids = log_probs.topk(min(count, classes), dim=1)
    return values, ids, log_probs.gather(1, forced.clamp(min=0)[:, None])[:, 0]
