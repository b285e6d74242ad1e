"""Windows: the pairs of an epoch in random order, a bounded number at a time, so that memory does not grow with the corpus.

An epoch of a small corpus is one window, which holds all its pairs. A large corpus has many: window n of an epoch is computed
from (seed, epoch, n) alone, without the others, because the random order is a function of the position rather than a list.
Knows pairs only by their numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from transduce.data.mixing import Mixture, Pass, Stretch, order_key

if TYPE_CHECKING:
    from transduce.data.batches import Pairs, Planned, Planner

LARGE = 1 << 22  # pairs of an epoch: with more, it is planned in windows
WINDOW = 1 << 20  # pairs: enough for batches of similar lengths, and about 100 MB of plan
ROUNDS = 6  # of mixing

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """The windows of all epochs of a run."""

    mixture: Mixture
    seed: int
    pairs_per_window: int = 0  # at most; 0: an epoch is one window

    def count(self, epoch: int) -> int:
        """How many windows an epoch has."""
        if not self.pairs_per_window:
            return 1
        return sum(self._of_pass(stretches) for stretches in self.mixture.stretches(epoch))

    def passes(self, epoch: int, window: int) -> list[Pass]:
        """The pairs of a window; no pair is twice in one of the arrays."""
        if not self.pairs_per_window:
            return self.mixture.epoch(self.seed, epoch)
        for number, stretches in enumerate(self.mixture.stretches(epoch)):
            count = self._of_pass(stretches)
            if window < count:
                return [self._part(stretches, [self.seed, epoch, number], window, count)]
            window -= count
        raise IndexError(f"epoch {epoch} has no such window")

    def plan(self, planner: "Planner[Planned]", pairs: "Pairs", epoch: int, window: int) -> "list[list[Planned]]":
        """The steps of a window."""
        return planner.plan(pairs, epoch, self.passes(epoch, window), window if self.pairs_per_window else None)

    def _of_pass(self, stretches: Sequence[Stretch]) -> int:
        return -(-_length(stretches) // self.pairs_per_window)

    def _part(self, stretches: Sequence[Stretch], key: list[int], window: int, count: int) -> Pass:
        """One of `count` equal parts of a pass in random order."""
        length = _length(stretches)
        positions = np.arange(length * window // count, length * (window + 1) // count)
        chosen = shuffled(positions, length, key)
        ends = np.cumsum([one.end - one.begin for one in stretches])
        which = np.searchsorted(ends, chosen, side="right")
        numbers = np.empty_like(chosen)
        for index, stretch in enumerate(stretches):
            here = which == index
            places = chosen[here] - (ends[index] - (stretch.end - stretch.begin)) + stretch.begin
            numbers[here] = self._numbers(stretch, places % max(1, stretch.pairs))
        return numbers

    def _numbers(self, stretch: Stretch, places: Positions) -> Pass:
        if not stretch.whole:
            places = shuffled(places, stretch.pairs, order_key(self.seed, stretch.corpus))
        return stretch.first + places


def usual_window(mixture: Mixture) -> int:
    """The `pairs_per_window` of a new run."""
    return WINDOW if sum(mixture.seen) > LARGE else 0


def shuffled(positions: Positions, count: int, key: Sequence[int]) -> Positions:
    """Where a random permutation of `range(count)`, which the key determines, sends these positions.

    Every round is a bijection of numbers with as many bits as `count - 1` has: an odd multiple, an offset, and high bits xored
    into low ones. A number that ends up outside the range goes through all rounds again.
    """
    bits = max(1, (count - 1).bit_length())
    draw = np.random.default_rng(list(key))
    rounds = [draw.integers(0, 1 << 63, 2, dtype=np.uint64) | np.uint64(1) for _ in range(ROUNDS)]
    mask, shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)

    def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        for multiple, offset in rounds:
            numbers = (numbers * multiple + offset) & mask
            numbers ^= numbers >> shift
        return numbers

    found = mixed(positions.astype(np.uint64))
    outside = np.flatnonzero(found >= count)
    while len(outside):
        found[outside] = mixed(found[outside])
        outside = outside[found[outside] >= count]
    return found.astype(np.int64)


def _length(stretches: Sequence[Stretch]) -> int:
    return sum(one.end - one.begin for one in stretches)
