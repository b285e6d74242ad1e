"""Mixing corpora: which pairs an epoch uses when each corpus has a weight.

The weight of a corpus says how often an epoch uses each of its pairs: with 2 every pair is used twice, with 0.5 half of
the pairs are used, and with 2.5 every pair is used twice and half of them a third time. The pairs of a corpus are put into one
random order that repeats without end, and each epoch continues where the epoch before it stopped. So with a weight of
0.5 any two consecutive epochs use every pair exactly once, and over any number of consecutive epochs the counts of two
pairs of a corpus differ by at most one.

An epoch consists of passes with an equal share of every corpus each, so that no pass contains a pair twice. The reason:
batches are made of pairs of similar length, and copies of a pair would end up in the same batch if they were sorted together.

The pairs of an epoch are a function of (counts, weights, seed, epoch), so a resumed run needs no saved state. This module
knows pairs only by their numbers.
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

PASS = 1 << 14  # fewest pairs of a pass, so that batches have similar lengths; small corpora may repeat pairs in a pass
_STREAM = 0x6D6978  # keeps these random orders independent of those drawn from (seed, epoch)


@dataclass(frozen=True)
class Stretch:
    """A part of the endlessly repeated order of one corpus."""

    corpus: int
    first: int  # the number of the corpus's first pair in the store
    pairs: int  # of the corpus
    begin: int
    end: int
    whole: bool  # whether it takes every pair equally often, so that the order does not matter


@dataclass(frozen=True)
class Mixture:
    """The corpora of a run, in the order of the store."""

    pairs: tuple[int, ...]
    weights: tuple[Fraction, ...]

    @classmethod
    def of(cls, pairs: tuple[int, ...], setting: tuple[str, ...]) -> Self:
        """`setting` is `data.weights`; if it is empty, every weight is 1. Weights are exact: 0.1 is one tenth."""
        weights = tuple(Fraction(repr(float(text))) for text in setting) or (Fraction(1),) * len(pairs)
        assert len(weights) == len(pairs), "settings are checked before data are read"
        return cls(pairs, weights)

    @property
    def seen(self) -> list[Fraction]:
        """How many pairs of each corpus an epoch uses on average."""
        return [weight * pairs for pairs, weight in zip(self.pairs, self.weights, strict=True)]

    @property
    def passes(self) -> int:
        """How many passes an epoch has: as many as the largest weight needs, if there are enough pairs."""
        return max(1, min(math.ceil(max(self.weights)), math.floor(sum(self.seen)) // PASS))

    def stretches(self, number: int) -> list[list[Stretch]]:
        """What each pass of an epoch takes of the order of each corpus."""
        first, passes = 0, range(number * self.passes, (number + 1) * self.passes)
        parts: list[list[Stretch]] = []
        for corpus, (pairs, weight) in enumerate(zip(self.pairs, self.weights, strict=True)):
            share = weight / self.passes
            bounds = [math.floor(share * pairs * passed) for passed in (*passes, passes.stop)]
            parts.append([Stretch(corpus, first, pairs, *ends, share.denominator == 1) for ends in pairwise(bounds)])
            first += pairs
        return [list(together) for together in zip(*parts, strict=True)]

    def epoch(self, seed: int, number: int) -> list[Pass]:
        """The passes of an epoch; they are not shuffled yet."""
        orders = {
            corpus: np.random.default_rng(order_key(seed, corpus)).permutation(pairs)
            for corpus, pairs in enumerate(self.pairs)
            if (self.weights[corpus] / self.passes).denominator > 1
        }

        def taken(stretch: Stretch) -> Pass:
            places = np.arange(stretch.begin, stretch.end) % max(1, stretch.pairs)
            return stretch.first + (places if stretch.whole else orders[stretch.corpus][places])

        return [np.concatenate([taken(one) for one in together]) for together in self.stretches(number)]

    def total(self, lengths: NDArray[np.int32]) -> int:
        """The sum over an epoch of something that each pair has, on average over many epochs."""
        ends = np.cumsum(self.pairs)
        parts = zip(self.weights, ends - self.pairs, ends, strict=True)
        return round(sum(weight * int(lengths[begin:end].sum(dtype=np.int64)) for weight, begin, end in parts))

    def check(self) -> None:
        """Refuse weights that would leave an epoch without pairs."""
        if not sum(map(math.floor, self.seen)):
            weights = ",".join(f"{float(weight):g}" for weight in self.weights)
            raise DataError(
                f"data.weights={weights} with {', '.join(f'{n:,}' for n in self.pairs)} pairs leaves no pairs in an epoch; "
                "use larger weights"
            )

    def summary(self, names: list[str]) -> list[str]:
        """A one-line summary of each corpus."""
        shares = [float(100 * seen / sum(self.seen)) for seen in self.seen]
        corpora = zip(names, self.pairs, self.weights, shares, strict=True)
        return [
            f"corpus {number} ({name}): {pairs:,} pairs x {float(weight):g} = {share:.1f} % of an epoch"
            for number, (name, pairs, weight, share) in enumerate(corpora, 1)
        ]


def order_key(seed: int, corpus: int) -> list[int]:
    """What the random order of a corpus depends on."""
    return [seed, corpus, _STREAM]
