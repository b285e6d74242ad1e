"""The decoder one token at a time, for many sentences in slots, with memory that never moves: what a GPU can replay.

Computes what `Transformer.step` computes; the caches have room from the start, a slot can be given to another sentence,
and beams change places by a table. Knows ids and vectors; which token comes next is the search's to say.

Axes: B slots, W beams, R = B W rows, T places of an output, S places of a source, D d_model, V classes, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from transduce.model import kernels
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import FeedForward
from transduce.model.transformer import Memory, Transformer


@dataclass(frozen=True)
class Read:
    """Sentences that the decoder can be asked about."""

    sources: Tensor  # [N, S, layers, 2 D], keys and values
    lengths: Tensor  # [N]

    def rows(self, rows: slice) -> "Read":
        return Read(self.sources[rows], self.lengths[rows])


class SlotDecoder:
    """The model's decoder with room for B sentences of W beams."""

    def __init__(self, model: Transformer, slots: int, beams: int, places: int, source_places: int) -> None:
        self.model, self.beams, self.norms = model, beams, _norms(model)
        like, rows, width = model.target_embedding.weight, slots * beams, model.config.d_model
        self.keys = [like.new_zeros(rows, places, width) for _ in model.decoder]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.sources = like.new_zeros(slots, source_places, len(model.decoder), 2 * width)
        self.lengths = torch.zeros(slots, dtype=torch.int32, device=like.device)
        self.row = torch.arange(rows, dtype=torch.int32, device=like.device)
        self.table = self.row[:, None].repeat(1, places)
        self.longest = min(places, model.target_positions.limit or places)  # no output is longer, whatever room it has

    @staticmethod
    def supports(model: Transformer) -> bool:
        """Whether heads are as wide as this needs, and positions are added to the embeddings."""
        config = model.config
        even = config.key_width == config.value_width and config.key_width * config.num_heads == config.d_model
        return even and config.key_width in kernels.HEAD_WIDTHS and config.positions != "rotary"

    @staticmethod
    def bytes_a_place(model: Transformer) -> int:
        """What each place of each row takes, at most: keys and values of itself and of a source."""
        like = model.target_embedding.weight
        return 4 * model.config.d_model * len(model.decoder) * like.element_size()

    def read(self, memory: Memory, into: Tensor | None = None) -> "Read":
        """The keys and values that every layer asks of these sentences, once; written to `into`, where given."""
        width, asked = memory.hidden.shape[2], [layer.source_attention.stacked for layer in self.model.decoder]
        shape = (*memory.hidden.shape[:2], *self.sources.shape[2:])
        sources = self.sources.new_empty(shape) if into is None else into
        for number, one in enumerate(asked):
            sources[:, :, number] = linear(memory.hidden, one.weight[width:], one.bias[width:])
        return Read(sources, (memory.segment != 0).sum(1, dtype=torch.int32))

    def put(self, slots: Tensor, read: "Read") -> None:
        """Other sentences into these slots [N]."""
        self.sources[slots, : read.sources.shape[1]] = read.sources
        self.lengths[slots] = read.lengths

    def step(self, tokens: Tensor, place: Tensor) -> Tensor:
        """The hidden states [R, D] after these tokens [R], the newest of rows whose slots are at `place` [B]."""
        position = place.repeat_interleave(self.beams)[:, None]
        x = self.model.embed_target(tokens[:, None], position, self.longest)[:, 0]
        pre, norms = self.model.config.norm == "pre", iter(self.norms)
        y = next(norms)(x) if pre else x  # what the next sub-layer asks
        for number, layer in enumerate(self.model.decoder):
            attention, source, feed = layer.attention, layer.source_attention, layer.feed_forward
            x, y = _leave(x, self._to_past(attention, y, number, place), attention.output, next(norms), pre)
            x, y = _leave(x, self._to_source(source, y, number), source.output, next(norms), pre)
            x, y = _leave(x, _hidden(feed, y), feed.outer, next(norms), pre)
        return y

    def follow(self, parents: Tensor, place: Tensor) -> None:
        """Row r goes on from row `parents[r]`, whose newest token was written at the place of its slot."""
        self.table.scatter_(1, place.repeat_interleave(self.beams)[:, None], self.row[:, None])
        self.table.copy_(self.table.index_select(0, parents))

    def _to_past(self, attention: MultiHeadAttention, y: Tensor, number: int, place: Tensor) -> Tensor:
        product, bias = linear(y, attention.stacked.weight), attention.stacked.bias
        attend = kernels.attend_to_past if kernels.serve(y) else attend_to_past
        return attend(product, bias, self.keys[number], self.values[number], self.table, place, attention.heads)

    def _to_source(self, attention: MultiHeadAttention, y: Tensor, number: int) -> Tensor:
        width = y.shape[1]
        queries = linear(y, attention.stacked.weight[:width], attention.stacked.bias[:width])
        attend = kernels.attend_to_source if kernels.serve(y) else attend_to_source
        return attend(queries, self.sources[:, :, number], self.lengths, attention.heads)


# --- around a sub-layer: what `Residual` does, one's end and the next one's beginning at once ---------------------


def _norms(model: Transformer) -> list[nn.Module]:
    """In the order they are needed: each before its sub-layer and one at the end, or each after it."""
    residuals = [
        residual
        for layer in model.decoder
        for residual in (layer.attention_residual, layer.source_attention_residual, layer.feed_forward_residual)
    ]
    return [*(residual.norm for residual in residuals), model.decoder_norm]


def _leave(x: Tensor, y: Tensor, last: nn.Linear, norm: nn.Module, pre: bool) -> tuple[Tensor, Tensor]:
    """The sub-layer's last product added, where nothing is dropped: what goes on beside the next, and what it asks."""
    if kernels.serve(x) and isinstance(norm, nn.LayerNorm):
        total, normed = kernels.leave(x, linear(y, last.weight), last.bias, norm.weight, norm.bias, norm.eps)
    else:
        total = x + last(y)
        normed = norm(total)
    return (total if pre else normed), normed


def _hidden(feed_forward: FeedForward, y: Tensor) -> Tensor:
    if kernels.serve(y) and feed_forward.activation is relu:
        return kernels.relu_product(y, feed_forward.inner.weight, feed_forward.inner.bias)
    return feed_forward.hidden(y)


# --- classes -----------------------------------------------------------------------------------------------------


def best_classes(model: Transformer, hidden: Tensor, count: int, must: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, as log-probabilities and ids [R, K], and that of the class it must
    take [R], without ever writing the log-probabilities of all."""
    weight, bias = model.classes
    logits = linear(hidden, model.output_embedding.weight) if bias is None else linear(hidden, weight, bias)
    find = kernels.best if kernels.serve(hidden) and count <= kernels.MOST_BEST else best
    return find(logits, len(weight), count, must)


# --- the plain forms of the kernels ----------------------------------------------------------------------------


def attend_to_past(
    product: Tensor, bias: Tensor, keys: Tensor, values: Tensor, table: Tensor, place: Tensor, heads: int
) -> Tensor:
    beams, row = len(product) // len(place), torch.arange(len(product), device=product.device)
    now = place.repeat_interleave(beams)
    query, key, value = (product + bias).to(keys.dtype).chunk(3, -1)
    keys[row, now], values[row, now] = key, value
    places = torch.arange(keys.shape[1], device=keys.device)
    rows = torch.where(places == now[:, None], row[:, None], table.long())
    return _attend(query, keys[rows, places], values[rows, places], places <= now[:, None], heads)


def attend_to_source(queries: Tensor, source: Tensor, lengths: Tensor, heads: int) -> Tensor:
    beams, places = len(queries) // len(lengths), torch.arange(source.shape[1], device=source.device)
    keys, values = source.repeat_interleave(beams, 0).chunk(2, -1)
    return _attend(queries, keys, values, places < lengths.repeat_interleave(beams)[:, None], heads)


def _attend(query: Tensor, keys: Tensor, values: Tensor, keep: Tensor, heads: int) -> Tensor:
    """[R, D], [R, T, D] twice and [R, T]; a row that may see nothing gets nothing."""
    query, keys, values = (x.float().unflatten(-1, (heads, -1)) for x in (query, keys, values))
    scores = torch.einsum("rhe,rthe->rht", query, keys) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~keep[:, None], -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("rht,rthe->rhe", weights, values).flatten(1).to(query.dtype)


def best(logits: Tensor, classes: int, count: int, must: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = logits[:, :classes].float().log_softmax(-1).clamp_(max=0)
    values, ids = log_probs.topk(min(count, classes), dim=1)
    return values, ids, log_probs.gather(1, must.clamp(min=0)[:, None])[:, 0]
