"""The decoder one token at a time, for many sentences in slots, with memory that never moves: what a GPU can replay.

Computes what `Transformer.step` computes; the caches have room from the start, a slot can be given to another sentence,
and beams change places by a table. Knows ids and vectors; which token comes next is the search's to say.

Axes: B slots, W beams, R = B W rows, T places of an output, S places of a source, D d_model, V classes, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from transduce.model import kernels
from transduce.model.attention import MultiHeadAttention
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
        self.model, self.beams = model, beams
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
        return even and config.positions != "rotary"

    @staticmethod
    def bytes_a_place(model: Transformer) -> int:
        """What each place of each row takes, at most: keys and values of itself and of a source."""
        like = model.target_embedding.weight
        return 4 * model.config.d_model * len(model.decoder) * like.element_size()

    def read(self, memory: Memory) -> "Read":
        """The keys and values that every layer asks of these sentences, once."""
        width, asked = memory.hidden.shape[2], [layer.source_attention.stacked for layer in self.model.decoder]
        made = [linear(memory.hidden, one.weight[width:], one.bias[width:]) for one in asked]
        lengths = (memory.segment != 0).sum(1, dtype=torch.int32)
        return Read(torch.stack(made, 2).to(self.sources.dtype), lengths)

    def put(self, slots: Tensor, read: "Read") -> None:
        """Other sentences into these slots [N]."""
        self.sources[slots, : read.sources.shape[1]] = read.sources
        self.lengths[slots] = read.lengths

    def step(self, tokens: Tensor, place: Tensor) -> Tensor:
        """The hidden states [R, D] after these tokens [R], the newest of rows whose slots are at `place` [B]."""
        position = place.repeat_interleave(self.beams)[:, None]
        x = self.model.embed_target(tokens[:, None], position, self.longest)
        for number, layer in enumerate(self.model.decoder):
            x = layer.attention_residual(x, lambda y: self._to_past(layer.attention, y, number, place))  # noqa: B023
            x = layer.source_attention_residual(x, lambda y: self._to_source(layer.source_attention, y, number))  # noqa: B023
            x = layer.feed_forward_residual(x, layer.feed_forward)
        return self.model.decoder_norm(x)[:, 0]

    def follow(self, parents: Tensor, place: Tensor) -> None:
        """Row r goes on from row `parents[r]`, whose newest token was written at the place of its slot."""
        self.table.scatter_(1, place.repeat_interleave(self.beams)[:, None], self.row[:, None])
        self.table.copy_(self.table.index_select(0, parents))

    def _to_past(self, attention: MultiHeadAttention, y: Tensor, number: int, place: Tensor) -> Tensor:
        product, bias = linear(y[:, 0], attention.stacked.weight), attention.stacked.bias
        attend = kernels.attend_to_past if kernels.serve(y) else attend_to_past
        heads = attend(product, bias, self.keys[number], self.values[number], self.table, place, attention.heads)
        return attention.output(heads)[:, None]

    def _to_source(self, attention: MultiHeadAttention, y: Tensor, number: int) -> Tensor:
        width = y.shape[2]
        queries = linear(y[:, 0], attention.stacked.weight[:width], attention.stacked.bias[:width])
        attend = kernels.attend_to_source if kernels.serve(y) else attend_to_source
        return attention.output(attend(queries, self.sources[:, :, number], self.lengths, attention.heads))[:, None]


def best_classes(model: Transformer, hidden: Tensor, count: int, must: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` most probable classes of each row, as log-probabilities and ids [R, K], and that of the class it must
    take [R], without ever writing the log-probabilities of all."""
    weight, bias = model.classes
    logits = linear(hidden, model.output_embedding.weight) if bias is None else linear(hidden, weight, bias)
    summary = kernels.summary if kernels.serve(hidden) else group_summary
    whole, maxima = summary(logits, len(weight))
    group = _largest(maxima, count)[1]
    ids = (group[:, :, None] * GROUP + torch.arange(GROUP, device=group.device)).flatten(1)
    inside = ids < len(weight)
    values = logits.gather(1, ids.clamp(max=len(weight) - 1)).float().masked_fill(~inside, -torch.inf)
    best, at = _largest(values, count)
    of_must = logits.gather(1, must.clamp(min=0)[:, None])[:, 0].float()
    best_ids = ids.gather(1, at).clamp(
        max=len(weight) - 1
    )  # of impossible ones, where there are fewer classes than asked
    return (best - whole[:, None]).clamp_(max=0), best_ids, (of_must - whole).clamp_(max=0)


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand; one alone is found several times faster."""
    return values.max(1, keepdim=True) if count == 1 else values.topk(min(count, values.shape[1]), dim=1)


# --- the plain forms of the kernels ----------------------------------------------------------------------------

GROUP = 64  # as `kernels.summary` has it


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


def group_summary(logits: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    logits = logits[:, :classes].float()
    groups = torch.nn.functional.pad(logits, (0, -classes % GROUP), value=-torch.inf).unflatten(1, (-1, GROUP))
    return logits.logsumexp(1), groups.amax(2)
