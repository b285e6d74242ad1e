"""Shards: the parts that every step of a run is cut into, and the fixed order in which their gradients are added.

A run has V shards (`train.shards`), however many threads or processes compute them. The gradient of a shard depends only on
(weights, seed, step, shard). Gradients are added in a balanced binary tree over the shards. The weights are one vector, always
cut into V slices, and each slice is updated by itself. So the number of threads and processes does not change a single bit
(docs/decisions/0019-shards.md). Knows batches, tensors and plans, but no models, processes or files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transduce.data.batches import Batch, Planner

ALIGNED = 64  # elements: weights and slices begin at multiples of this, where vector instructions treat all alike


@dataclass(frozen=True)
class Shard:
    """One shard of a step: its number and its batches; a small step leaves some shards without any."""

    number: int
    batches: list[Batch]


@dataclass(frozen=True)
class Share:
    """The shards of every step that one of `processes` processes computes: a whole subtree of the sum."""

    shards: int
    number: int = 0  # of the process
    processes: int = 1
    at_once: int = 1  # shards that are computed at the same time, each on a thread of its own

    @property
    def own(self) -> range:
        each = self.shards // self.processes
        return range(self.number * each, (self.number + 1) * each)

    def work(self, planner: Planner[Any], step: list[Any], make: Callable[[Any], Batch]) -> list[list[Shard]]:
        """This process's shards of a planned step, in groups that are computed at the same time."""
        planned = planner.shards(step, self.shards)
        shards = [Shard(number, [make(batch) for batch in planned[number]]) for number in self.own]
        return [shards[begin : begin + self.at_once] for begin in range(0, len(shards), self.at_once)]


def shard_seed(step_seed: int, shard: int) -> int:
    """The seed of the dropout of one shard of a step."""
    return int(np.random.SeedSequence([step_seed, shard]).generate_state(1, np.uint64)[0] >> 1)


class TreeSum:
    """The sum of vectors that arrive in order, added as a balanced binary tree; log2 of them wait at a time."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self.make = make
        self.spare: list[Tensor] = []
        self.waiting: list[tuple[int, Tensor]] = []  # sums of 2^n vectors each, the largest first

    def vector(self) -> Tensor:
        """Memory for the next vector; its content is that of an earlier one."""
        return self.spare.pop() if self.spare else self.make()

    def add(self, vector: Tensor) -> None:
        """Add the next vector, which belongs to this sum from now on."""
        leaves = 1
        while self.waiting and self.waiting[-1][0] == leaves:
            _, left = self.waiting.pop()
            left += vector
            self.spare.append(vector)
            vector, leaves = left, 2 * leaves
        self.waiting.append((leaves, vector))

    def total(self) -> Tensor:
        """The sum of all vectors; their number must be a power of two."""
        ((_, vector),) = self.waiting
        return vector

    def clear(self) -> None:
        self.spare += [vector for _, vector in self.waiting]
        self.waiting = []


def tree_sum(vectors: Sequence[Tensor]) -> Tensor:
    """The sum of these vectors as a balanced binary tree; the first one is overwritten."""
    tree = TreeSum(lambda: torch.empty_like(vectors[0]))
    for vector in vectors:
        tree.add(vector)
    return tree.total()


@dataclass(frozen=True)
class Run:
    """Consecutive elements of a slice whose weights all decay, or all do not."""

    begin: int
    end: int
    decayed: bool


@dataclass(frozen=True)
class Slices:
    """All weights as one vector of `count` slices of equal length; each weight begins at an aligned element.

    Weights that are marked as `whole` do not cross the edge of a slice. They come after all others.
    """

    shapes: tuple[torch.Size, ...]
    decayed: tuple[bool, ...]  # whether weight decay applies to each weight
    count: int
    whole: tuple[bool, ...] = ()  # for each weight; empty: none of them is

    @cached_property
    def length(self) -> int:
        """The elements of one slice."""
        length = _aligned(-(-sum(map(_padded, self.shapes)) // self.count))
        if any(self.whole):
            length = max(length, *(_padded(self.shapes[weight]) for weight in self._weights(whole=True)))
            while self._packed(length)[-1] > self.count * length:
                length = _aligned(length + length // 100 + 1)
        return length

    @property
    def size(self) -> int:
        """The elements of the vector, gaps included."""
        return self.count * self.length

    def bounds(self, number: int) -> slice:
        return slice(number * self.length, (number + 1) * self.length)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of the vector in the shapes of the weights."""
        places = zip(self.begins, self.shapes, strict=True)
        return [vector[begin : begin + shape.numel()].view(shape) for begin, shape in places]

    def runs(self, number: int) -> Iterator[Run]:
        """The part of a slice before its whole weights, cut where weight decay begins or ends."""
        within, end = self.bounds(number), self._end_of_divided
        changes = [begin for begin, decayed in self._changes() if within.start < begin < min(within.stop, end)]
        edges = [within.start, *changes, min(within.stop, end)]
        for begin, end in pairwise(edges) if edges[0] < edges[-1] else ():
            yield Run(begin, end, [decayed for at, decayed in self._changes() if at <= begin][-1])

    def whole_weights(self, number: int) -> list[int]:
        """The whole weights of a slice, by their numbers among all weights."""
        within = self.bounds(number)
        return [weight for weight in self._weights(whole=True) if within.start <= self.begins[weight] < within.stop]

    @cached_property
    def begins(self) -> list[int]:
        """Where each weight begins."""
        found = dict(zip(self._order, self._packed(self.length), strict=False))
        return [found[weight] for weight in range(len(self.shapes))]

    def _packed(self, length: int) -> list[int]:
        """Where each weight begins in slices of this length, in the order of the vector; at last the end."""
        begins, end = [], 0
        for weight in self._order:
            size = _padded(self.shapes[weight])
            if self._is_whole(weight) and end % length + size > length:
                end = -(-end // length) * length
            begins.append(end)
            end += size
        return [*begins, end]

    @cached_property
    def _order(self) -> list[int]:
        return [*self._weights(whole=False), *self._weights(whole=True)]

    def _weights(self, whole: bool) -> list[int]:
        return [weight for weight in range(len(self.shapes)) if self._is_whole(weight) == whole]

    def _is_whole(self, weight: int) -> bool:
        return bool(self.whole) and self.whole[weight]

    @cached_property
    def _end_of_divided(self) -> int:
        """Where the whole weights begin; without any, the end of the vector."""
        return min((self.begins[weight] for weight in self._weights(whole=True)), default=self.size)

    def _changes(self) -> list[tuple[int, bool]]:
        """Where a stretch of weights with or without decay begins."""
        found: list[tuple[int, bool]] = []
        for weight in self._weights(whole=False):
            if not found or found[-1][1] != self.decayed[weight]:
                found.append((self.begins[weight], self.decayed[weight]))
        return found


def _aligned(elements: int) -> int:
    return -(-elements // ALIGNED) * ALIGNED


def _padded(shape: torch.Size) -> int:
    return _aligned(shape.numel())
