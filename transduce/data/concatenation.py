"""Augmentation for small data: another pair is appended to training pairs.

A model memorises a few thousand pairs. Two pairs, one after the other, are a pair that it has not seen, and to translate it, the model
has to attend to the right part of the source. Both sides keep their `</s>` between the two, so a model that translates one source stops at its end.

Everything is drawn from (seed, epoch), so a resumed run sees what it would have seen. Lengths change, so pairs are drawn before an
epoch is planned. Knows ids, no text.
"""

import numpy as np
from numpy.typing import NDArray

from transduce.data.batches import Ids, Pairs
from transduce.text import Vocabularies

_PARTNERS = 0x70616972  # keeps these draws independent of the order of an epoch


class ConcatenatedPairs:
    """The pairs of a corpus in one epoch; a share of them is followed by another pair of the same corpus."""

    def __init__(self, pairs: Pairs, share: float, longest: int, seed: int, epoch: int) -> None:
        self.pairs, self.groups = pairs, pairs.groups
        draw = np.random.default_rng([seed, epoch, _PARTNERS])
        partner = _of_the_same_group(pairs.groups, draw)
        both = [lengths + lengths[partner] for lengths in (pairs.source_lengths, pairs.target_lengths)]
        chosen = (draw.random(len(partner)) < share) & (np.maximum(*both) <= longest)
        self.partner: NDArray[np.int64] = np.where(chosen, partner, -1)
        self.source_lengths: NDArray[np.int32] = np.where(chosen, both[0], pairs.source_lengths)
        self.target_lengths: NDArray[np.int32] = np.where(chosen, both[1], pairs.target_lengths)

    @property
    def size(self) -> int:
        return self.pairs.size

    def source(self, index: int) -> Ids:
        return self.sources(np.array([index]))

    def target(self, index: int) -> Ids:
        return self.targets(np.array([index]))

    def sources(self, numbers: Ids) -> Ids:
        return self.pairs.sources(self._read(numbers))

    def targets(self, numbers: Ids) -> Ids:
        return self.pairs.targets(self._read(numbers))

    def _read(self, numbers: Ids) -> Ids:
        """The pairs to read for these numbers, each followed by its partner."""
        both = np.stack([np.asarray(numbers), self.partner[numbers]], axis=1).ravel()
        return both[both >= 0]

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> Pairs:
        raise AssertionError("pairs are segmented before they are concatenated")


def _of_the_same_group(groups: tuple[int, ...], draw: np.random.Generator) -> NDArray[np.int64]:
    """For each pair, the number of a random pair of its group."""
    begins = np.concatenate([[0], np.cumsum(groups)[:-1]])
    return np.concatenate(
        [begin + draw.integers(0, count, count) for begin, count in zip(begins, groups, strict=True) if count]
    )
