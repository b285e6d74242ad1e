"""Padded batches of few shapes, for sources that cannot share a row: a GPU captures its work on each shape once.

Lengths are rounded up to widths that grow by a tenth, and every batch of a width has the same number of rows, so that all of them have
about as many positions. As for other batches, the plan is a pure function of (lengths, seed, epoch, window), and it contains every pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.data.batches import Batch, Ids, Pairs, make_batch, order_of

GROWTH = 1.1  # of one width to the next
GRAIN = 16  # source widths are multiples of this, target widths of half of it


@dataclass(frozen=True)
class Bucket:
    """A batch: its pairs, and the shape that it has whatever their lengths; rows without a pair are padding."""

    pairs: Ids
    rows: int
    source_width: int
    target_width: int


@dataclass(frozen=True)
class Bucketing:
    """Batches with one pair per row; the fields are everything their order depends on."""

    tokens_per_batch: int
    max_positions: int  # of a batch on each side, padding included; a step with more of them is several batches
    seed: int
    source_per_target: float  # source positions for each target token, over all of the data

    @property
    def positions_per_step(self) -> int:
        return max(1, round(self.tokens_per_batch * self.source_per_target))

    def plan(
        self, pairs: Pairs, epoch: int, passes: Sequence[Ids] = (), window: int | None = None
    ) -> list[list[Bucket]]:
        """The steps of an epoch or of a window, in random order."""
        numbers = np.concatenate(passes) if passes else np.arange(len(pairs.source_lengths))
        order = order_of(self.seed, epoch, window)
        batches = self._cut(pairs, order.permutation(numbers))
        order.shuffle(batches)
        each = -(-self.positions_per_step // self.max_positions)
        return [batches[begin : begin + each] for begin in range(0, len(batches), each)]

    def _cut(self, pairs: Pairs, numbers: Ids) -> list[Bucket]:
        """Fill the batches of each width; pairs that are left over go to the next width, so that only the last batch is not full."""
        widths = _widths(pairs.source_lengths[numbers])
        left, batches = numbers[:0], list[Bucket]()
        for width in np.unique(widths):
            waiting, rows = np.concatenate([left, numbers[widths == width]]), self._rows(int(width))
            full = len(waiting) // rows * rows
            left = waiting[full:]
            target = _target_width(pairs, numbers[widths <= width])
            batches += [
                Bucket(waiting[begin : begin + rows], rows, int(width), target) for begin in range(0, full, rows)
            ]
        if len(left):
            width = int(widths.max())
            batches.append(Bucket(left, self._rows(width), width, _target_width(pairs, numbers)))
        return batches

    def _rows(self, width: int) -> int:
        return max(1, min(self.positions_per_step, self.max_positions) // width)

    def make(self, pairs: Pairs, batch: Bucket, source_pad: int, target_pad: int) -> Batch:
        """The tensors of a batch of the plan."""
        made = make_batch(pairs, batch.pairs, source_pad, target_pad)
        return made.padded_to(batch.rows, batch.source_width, batch.target_width)

    def shards(self, step: list[Bucket], count: int) -> list[list[Bucket]]:
        """Batches dealt out in turn."""
        return [step[shard::count] for shard in range(count)]

    def pairs_of(self, batch: Bucket) -> Ids:
        return batch.pairs

    def positions_of(self, batch: Bucket, pairs: Pairs) -> int:
        return batch.rows * (batch.source_width + batch.target_width)


def _widths(lengths: Ids) -> NDArray[np.int64]:
    """The width of each length: the next of the widths that every run has."""
    sizes = [GRAIN]
    while sizes[-1] < int(lengths.max(initial=1)):
        sizes.append(-(-int(sizes[-1] * GROWTH + 1) // GRAIN) * GRAIN)
    return np.asarray(sizes)[np.searchsorted(sizes, lengths)]


def _target_width(pairs: Pairs, numbers: Ids) -> int:
    """A width for the targets of all pairs up to some source width, so that there is one for each source width."""
    return int(_widths(2 * pairs.target_lengths[numbers]).max()) // 2
