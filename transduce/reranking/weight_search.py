"""Searches weights for features directly by the metric. Knows numbers only: features, counts of a metric, and a seed.

Axes: N lines, K outputs of a line, F features, C counts of the metric.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Gain = Callable[[Array], float]  # the sums of the counts [C] -> the score, where more is better

ROUNDS, CANDIDATES = 24, 48
FINEST, COARSEST = 0.01, 3.0  # step sizes, in units in which all features vary alike


@dataclass(frozen=True)
class Lists:
    """N-best lists as numbers, padded to the same length."""

    features: Array  # [N, K, F]
    counts: Array  # [N, K, C]
    real: NDArray[np.bool_]  # [N, K]

    @staticmethod
    def of(features: Sequence[Array], counts: Sequence[Array]) -> "Lists":
        """The lists with outputs; a line without any is left out."""
        pairs = [(one, other) for one, other in zip(features, counts, strict=True) if len(one)]
        longest = max(len(one) for one, _ in pairs)
        real = np.array([[n < len(one) for n in range(longest)] for one, _ in pairs])
        return Lists(_padded([one for one, _ in pairs], longest), _padded([one for _, one in pairs], longest), real)

    def chosen(self, weights: Array) -> NDArray[np.intp]:
        """The output of each line that these weights put first [N]."""
        return np.where(self.real, self.features @ weights, -np.inf).argmax(1)

    def sums(self, weights: Array) -> Array:
        """The counts of the metric, summed over the outputs that these weights put first [C]."""
        return self.counts[np.arange(len(self.counts)), self.chosen(weights)].sum(0)

    def units(self) -> Array:
        """For each feature, the weight with which it varies as much within a list as the first one [F]; 0 if it never does."""
        masked = np.where(self.real[..., None], self.features, np.nan)
        spread = np.nanmean(np.nanstd(masked, axis=1), axis=0)
        return np.divide(spread[0] or 1.0, spread, out=np.zeros_like(spread), where=spread > 0)


def _padded(rows: Sequence[Array], longest: int) -> Array:
    return np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows]).astype(np.float64)


def search_weights(lists: Lists, gain: Gain, at_least: Array, seed: int) -> Array:
    """The best weights found [F], with the first one fixed at 1; never worse than 1, 0, 0, ... on these lists.

    A random search around the best weights so far, with steps of all sizes. `at_least` are lower bounds of the weights. Only
    strictly better weights are taken, so that a feature that does not help keeps a weight of 0.
    """
    draw, units = np.random.default_rng(seed), lists.units()
    best = np.zeros(len(units))
    best[0], units[0] = 1.0, 0.0
    best_gain = gain(lists.sums(best))
    for _ in range(ROUNDS):
        sizes = np.exp(draw.uniform(np.log(FINEST), np.log(COARSEST), (CANDIDATES, 1)))
        some = draw.random((CANDIDATES, len(units))) < 0.5  # change some weights, and leave the others
        steps = sizes * units * some * draw.standard_normal((CANDIDATES, len(units)))
        for weights in np.maximum(best + steps, at_least):
            if (found := gain(lists.sums(weights))) > best_gain:
                best, best_gain = weights, found
    return best
