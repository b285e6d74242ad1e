"""Multi-head attention (section 3.2) in its three uses, the cache of keys and values, and the taps.

Works on vectors only; the mask comes in as `keep`. A tap is a function that receives a module's attention weights; without a
tap they are not computed separately.

Axes: R rows, Q query positions, K key positions, D d_model, H heads, E width of a head.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from transduce.config import LayersConfig
from transduce.model.additive import additive_scores
from transduce.model.deterministic_attention import deterministic_attention
from transduce.model.dropout import Dropout
from transduce.model.positions import rotate
from transduce.model.shapes import Bool, Float, Int
from transduce.model.tokens import Keep
from transduce.model.windowed import pays_off, windowed_attention

Tap = Callable[[Tensor], None]


@dataclass
class KeysValues:
    """The keys and values of one attention, each [R, H, K, E]."""

    keys: Float[Tensor, "R H K E"]
    values: Float[Tensor, "R H K V"]

    def select(self, rows: Int[Tensor, "N"]) -> "KeysValues":
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def last(self, count: int) -> "KeysValues":
        return KeysValues(self.keys[:, :, -count:], self.values[:, :, -count:])


class Cache:
    """Keys and values of the target so far, in a buffer that doubles when it is full, so that most steps copy nothing."""

    INITIAL_CAPACITY = 32

    def __init__(self) -> None:
        self.length = 0
        self.buffer: KeysValues | None = None

    def append(self, new: KeysValues) -> KeysValues:
        """Add the new keys and values; returns all of them, the new ones last."""
        begin, self.length = self.length, self.length + new.keys.shape[2]
        self.buffer = _with_capacity(self.buffer, new, begin, self.length)
        self.buffer.keys[:, :, begin : self.length] = new.keys
        self.buffer.values[:, :, begin : self.length] = new.values
        return self._used()

    def select(self, rows: Int[Tensor, "N"]) -> None:
        """Keep these rows in this order; a row may be repeated or left out."""
        if self.buffer is not None:
            chosen = self._used().select(rows)
            self.buffer = _with_capacity(None, chosen, 0, self.buffer.keys.shape[2])
            self.buffer.keys[:, :, : self.length] = chosen.keys
            self.buffer.values[:, :, : self.length] = chosen.values

    def _used(self) -> KeysValues:
        assert self.buffer is not None
        return KeysValues(self.buffer.keys[:, :, : self.length], self.buffer.values[:, :, : self.length])


def _with_capacity(old: KeysValues | None, like: KeysValues, used: int, needed: int) -> KeysValues:
    if old is not None and needed <= old.keys.shape[2]:
        return old
    capacity = max(needed, 2 * used, Cache.INITIAL_CAPACITY)
    keys, values = (t.new_empty(*t.shape[:2], capacity, t.shape[3]) for t in (like.keys, like.values))
    if old is not None:
        keys[:, :, :used], values[:, :, :used] = old.keys[:, :, :used], old.values[:, :, :used]
    return KeysValues(keys, values)


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k)) V in every head, concatenated and projected.

    The matrices W^Q, W^K, W^V of all heads are stacked in one, so that self-attention is one product.
    Differs from the paper: the projections have biases, as in torch.nn and the runtimes we export to. Settings let queries and keys
    be compared without the factor or additively, and restrict self-attention to a window.
    """

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.heads, self.d_k, self.d_v = config.num_heads, config.key_width, config.value_width
        self.dropout = Dropout(config.attention_dropout)
        self.scale = 1.0 if config.attention == "dot" else self.d_k**-0.5
        self.window = config.window
        self.rotary = config.positions == "rotary"
        self.widths = [self.heads * self.d_k, self.heads * self.d_k, self.heads * self.d_v]
        self.stacked = nn.Linear(config.d_model, sum(self.widths))
        self.output = nn.Linear(self.widths[2], config.d_model)
        self.score = nn.Parameter(torch.empty(self.heads, self.d_k, 1)) if config.attention == "additive" else None
        self.tap: Tap | None = None
        for weight in [*self.stacked.weight.split(self.widths), self.output.weight]:
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.stacked.bias)
        nn.init.zeros_(self.output.bias)
        if self.score is not None:
            nn.init.normal_(self.score, std=self.d_k**-0.5)

    def to_self(
        self, x: Float[Tensor, "R Q D"], position: Int[Tensor, "R Q"], keep: Keep | None, cache: Cache | None = None
    ) -> Float[Tensor, "R Q D"]:
        """Self-attention; with a cache, the keys and values of earlier positions are included."""
        queries, keys, values = map(self._split, self.stacked(x).split(self.widths, dim=-1))
        if self.rotary:
            queries, keys = rotate(queries, position), rotate(keys, position)
        reached = KeysValues(keys, values)
        if cache is not None:
            past = cache.append(reached)
            reached = past.last(self.window + 1) if self.window and x.shape[1] == 1 else past
        return self._attend(queries, reached, keep)

    def to_memory(
        self, x: Float[Tensor, "R Q D"], keys_values: KeysValues, keep: Keep | None
    ) -> Float[Tensor, "R Q D"]:
        """Encoder-decoder attention: queries from `x`, keys and values computed by `keys_values`."""
        weight, bias = self.stacked.weight[: self.widths[0]], self.stacked.bias[: self.widths[0]]
        return self._attend(self._split(linear(x, weight, bias)), keys_values, keep)

    def keys_values(self, memory: Float[Tensor, "R K D"]) -> KeysValues:
        """Project the encoder's output to keys and values, once for all target positions."""
        weight, bias = self.stacked.weight[self.widths[0] :], self.stacked.bias[self.widths[0] :]
        keys, values = linear(memory, weight, bias).split(self.widths[1:], dim=-1)
        return KeysValues(self._split(keys), self._split(values))

    def _split(self, x: Float[Tensor, "R W HE"]) -> Float[Tensor, "R H W E"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _attend(self, queries: Tensor, keys_values: KeysValues, keep: Keep | None) -> Tensor:
        keys, values = keys_values.keys, keys_values.values
        if self.tap is not None:
            self.tap(self._weights(queries, keys, keep))
        dropout = self.dropout.p if self.training else 0.0
        # torch's dropout of attention uses a generator that all threads of a CPU share.
        if self.score is not None or (dropout and queries.device.type == "cpu"):
            heads = self.dropout(self._weights(queries, keys, keep)).to(values.dtype) @ values
        elif keep is not None and pays_off(keep):
            heads = windowed_attention(queries, keys, values, keep, self.scale, dropout)
        else:
            # Without a mask, torch has faster kernels, and needs no memory for W x W booleans.
            causal = keep is not None and keep.only_causal
            mask = None if keep is None or causal else keep.mask
            heads = deterministic_attention(queries, keys, values, mask, dropout, causal, self.scale)
        return self.output(heads.transpose(1, 2).flatten(-2))

    def _weights(self, queries: Tensor, keys: Tensor, keep: Keep | None) -> Tensor:
        mask = None if keep is None else keep.mask
        if self.score is not None:
            return masked_softmax(additive_scores(queries, keys, self.score).float(), mask)
        return attention_weights(queries, keys, mask, self.scale)


def attention_weights(
    queries: Float[Tensor, "R H Q E"],
    keys: Float[Tensor, "R H K E"],
    keep: Bool[Tensor, "R 1 _ K"] | None,
    scale: float | None = None,
) -> Float[Tensor, "R H Q K"]:
    """softmax(Q K^T / sqrt(d_k)), equation (1) without the values, as attention maps show it; or with another scale."""
    scores = queries.float() @ keys.float().transpose(-1, -2) * (queries.shape[-1] ** -0.5 if scale is None else scale)
    return masked_softmax(scores, keep)


def masked_softmax(scores: Float[Tensor, "R H Q K"], keep: Bool[Tensor, "R 1 _ K"] | None) -> Float[Tensor, "R H Q K"]:
    if keep is not None:
        scores = scores.masked_fill(~keep, float("-inf"))
    return scores.softmax(dim=-1)
