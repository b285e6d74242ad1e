"""Which pairs an epoch is made of, where each corpus has a weight of its own.

A weight is how often every pair of its corpus is seen in an epoch: 2 shows each of them twice, 0.5 half of them, 2.5 all
twice and half of them once more. The pairs of a corpus stand in one random order, repeated without end, and an epoch
takes up where the one before it left off. So a weight of 0.5 shows every pair exactly once in any two epochs that follow
each other, and over any stretch of epochs two pairs of a corpus are seen equally often, or one of them once more.

An epoch comes in passes, each with an even share of every corpus, so that no pass has a pair twice. Batches are made of
pairs of one length: the copies of a pair, being of one length, would meet in one batch if they were sorted together.

What an epoch takes is a function of (counts, weights, seed, epoch), so a run that goes on needs nothing kept. Knows
pairs by their numbers only.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError

Pass = NDArray[np.int64]  # numbers of pairs in the store

PASS = 1 << 14  # pairs of a pass at least, or batches are of unequal lengths; then a pair may be in a pass again
_STREAM = 0x6D6978  # sets these random orders apart from those drawn of (seed, epoch)


@dataclass(frozen=True)
class Mixture:
    """The corpora of a run, in the order of the store."""

    pairs: tuple[int, ...]
    weights: tuple[Fraction, ...]

    @classmethod
    def of(cls, pairs: tuple[int, ...], setting: tuple[str, ...]) -> Self:
        """`setting` is `data.weights`; where it is empty every pair is seen once. 0.1 is a tenth, to the last epoch."""
        weights = tuple(Fraction(repr(float(text))) for text in setting) or (Fraction(1),) * len(pairs)
        assert len(weights) == len(pairs), "settings are checked before data are read"
        return cls(pairs, weights)

    @property
    def seen(self) -> list[Fraction]:
        """How many pairs of each corpus an epoch has, in the mean of many."""
        return [weight * pairs for pairs, weight in zip(self.pairs, self.weights, strict=True)]

    @property
    def passes(self) -> int:
        """As many as the largest weight asks for, if the pairs suffice."""
        return max(1, min(math.ceil(max(self.weights)), math.floor(sum(self.seen)) // PASS))

    def epoch(self, seed: int, number: int) -> list[Pass]:
        """The passes of an epoch, each yet to be shuffled."""
        first, passes = 0, range(number * self.passes, (number + 1) * self.passes)
        parts: list[list[Pass]] = []
        for corpus, (pairs, weight) in enumerate(zip(self.pairs, self.weights, strict=True)):
            share = weight / self.passes
            # What takes whole rounds takes every pair, and the order says nothing.
            order = np.arange(pairs) if share.denominator == 1 else _order(pairs, seed, corpus)
            bounds = [math.floor(share * pairs * passed) for passed in (*passes, passes.stop)]
            parts.append([first + order[np.arange(*ends) % max(1, pairs)] for ends in pairwise(bounds)])
            first += pairs
        return [np.concatenate(together) for together in zip(*parts, strict=True)]

    def check(self) -> None:
        """Refuse what would leave an epoch without a single pair."""
        if not sum(map(math.floor, self.seen)):
            weights = ",".join(f"{float(weight):g}" for weight in self.weights)
            raise DataError(
                f"data.weights = {weights} of {', '.join(f'{n:,}' for n in self.pairs)} pairs: not one pair is left "
                "in an epoch: raise them"
            )

    def summary(self, names: list[str]) -> list[str]:
        """A line for people on each corpus."""
        shares = [float(100 * seen / sum(self.seen)) for seen in self.seen]
        corpora = zip(names, self.pairs, self.weights, shares, strict=True)
        return [
            f"corpus {number} ({name}): {pairs:,} pairs x {float(weight):g} = {share:.1f} % of an epoch"
            for number, (name, pairs, weight, share) in enumerate(corpora, 1)
        ]


def _order(pairs: int, seed: int, corpus: int) -> Pass:
    return np.random.default_rng([seed, corpus, _STREAM]).permutation(pairs)
