"""Packed batches for GPUs: the plan of an epoch in pages, and the tensors of one batch.

As for padded batches, the plan is a pure function of (lengths, seed, epoch, window), and it contains every pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from transduce.data.batches import Batch, Ids, Pairs, first_inputs, order_of
from transduce.data.packing import WIDTH, Pages, Widths, pages_of_epoch
from transduce.model import IGNORED, Sequences, Tokens


@dataclass(frozen=True)
class Paging:
    """Batches with several pairs per row; the fields are everything their order depends on."""

    tokens_per_batch: int
    max_positions: int  # of a batch on each side; a step with more of them is several batches
    seed: int
    width: int = WIDTH  # positions of a row on its longer side
    shards_per_step: int = 1  # of which each has equally many batches
    packed: bool = True  # otherwise one pair per row

    @property
    def batches_per_shard(self) -> int:
        """The most batches of a shard in a step; the last step of an epoch may have fewer."""
        return max(1, -(-self.tokens_per_batch // (self.shards_per_step * self.max_positions)))

    def plan(
        self, pairs: Pairs, epoch: int, passes: Sequence[Ids] = (), window: int | None = None
    ) -> list[list[Pages]]:
        """The steps of an epoch or of a window, in random order."""
        numbers = np.concatenate(passes) if passes else np.arange(len(pairs.source_lengths))
        batches_per_step = self.shards_per_step * self.batches_per_shard
        batches = pages_of_epoch(
            pairs.source_lengths,
            pairs.target_lengths,
            numbers,
            self.tokens_per_batch // batches_per_step,
            Widths.fitting(int(pairs.source_lengths.sum()), int(pairs.target_lengths.sum()), self.width),
            order_of(self.seed, epoch, window),
            self.packed,
        )
        return [batches[begin : begin + batches_per_step] for begin in range(0, len(batches), batches_per_step)]

    def make(self, pairs: Pairs, batch: Pages, source_pad: int, target_pad: int) -> Batch:
        made = make_pages(pairs, batch, source_pad, target_pad)
        return made if self.packed else replace(made, target=_sequences(made.target))

    def shards(self, step: list[Pages], count: int) -> list[list[Pages]]:
        """Batches dealt out in turn; the last step of an epoch may leave some shards without any."""
        return [step[shard::count] for shard in range(count)]

    def pairs_of(self, batch: Pages) -> Ids:
        return batch.pairs

    def positions_of(self, batch: Pages, pairs: Pairs) -> int:
        return batch.positions


def make_pages(pairs: Pairs, pages: Pages, source_pad: int, target_pad: int) -> Batch:
    """A batch with several pairs per row; rows without pairs are padding."""
    row = np.repeat(np.arange(len(pages.counts)), pages.counts)
    first_of_row = np.repeat(np.cumsum(pages.counts) - pages.counts, pages.counts)
    segment = np.arange(len(pages.pairs)) - first_of_row + 1
    source = _lay_out(pairs.sources(pages.pairs), pairs.source_lengths[pages.pairs], row, segment)
    target = _lay_out(pairs.targets(pages.pairs), pairs.target_lengths[pages.pairs], row, segment)
    first = np.repeat(first_inputs(pairs, pages.pairs, target_pad), pairs.target_lengths[pages.pairs])
    inputs = np.where(target.position == 0, first, np.roll(target.ids, 1))
    labels = torch.full((pages.rows, pages.widths.target), IGNORED, dtype=torch.int32)
    labels.view(-1).numpy()[target.index(pages.widths.target)] = target.ids
    return Batch(
        source=source.tokens(pages.rows, pages.widths.source, source_pad),
        target=replace(target, ids=inputs).tokens(pages.rows, pages.widths.target, target_pad),
        labels=labels,
    )


def _sequences(tokens: Tokens) -> Sequences:
    return Sequences(tokens.ids, tokens.position, tokens.segment)


@dataclass(frozen=True)
class _Layout:
    """The tokens of one side end to end, and the row and column of each in the pages."""

    ids: Ids
    position: Ids
    segment: Ids
    row: Ids
    column: Ids

    def index(self, width: int) -> Ids:
        """Where each token stands in the flattened pages."""
        return self.row * width + self.column

    def tokens(self, rows: int, width: int, pad: int) -> Tokens:
        parts = torch.zeros(3, rows * width, dtype=torch.int32)
        parts[0] = pad
        index = self.index(width)
        for part, values in zip(parts.numpy(), (self.ids, self.position, self.segment), strict=True):
            part[index] = values
        return Tokens(*parts.view(3, rows, width))


def _lay_out(ids: Ids, lengths: Ids, row: Ids, segment: Ids) -> _Layout:
    begins = np.cumsum(lengths) - lengths
    first_of_row = begins[np.searchsorted(row, row)]
    position = np.arange(len(ids)) - np.repeat(begins, lengths)
    column = np.arange(len(ids)) - np.repeat(first_of_row, lengths)
    return _Layout(ids, position, np.repeat(segment, lengths), np.repeat(row, lengths), column)
