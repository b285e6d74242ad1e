"""The limits of the rules: chosen so that 99.9 % of the validation data are kept, or built-in ones if there are few validation data.

Any of them can be given. Knows lengths, and no texts.
"""

import difflib
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block
from transduce.diagnosis.findings import Threshold
from transduce.diagnosis.pairs import length_ratios
from transduce.errors import SettingError

KEPT = 0.999  # share of the validation data
ENOUGH = 5_000  # validation pairs: with fewer, the most unusual of them say little
ENOUGH_FOR_MEDIAN = 50  # pairs
MARGIN = 3.5  # how far from the usual ratio is still accepted without enough validation data
BUILT_IN = {
    "longest_source": 2_000.0,  # characters
    "longest_target": 2_000.0,
    "smallest_ratio": 1 / MARGIN,  # target length / source length; times the usual ratio, if it is known
    "largest_ratio": MARGIN,
    "shared_ngrams": 0.7,  # of the n-grams of a held-out sentence that one training sentence has
}
RATIOS = ("smallest_ratio", "largest_ratio")


def thresholds(valid: Iterable[Block], train: Iterable[Block], given: Mapping[str, float]) -> dict[str, Threshold]:
    """The limits, from the validation data where it is large enough; `train` are a few blocks of the training data."""
    lengths = Lengths.of(valid)
    usual = next((some.median for some in (lengths, Lengths.of(train)) if some.pairs >= ENOUGH_FOR_MEDIAN), 1.0)
    chosen = {name: Threshold(value * (usual if name in RATIOS else 1), "built-in") for name, value in BUILT_IN.items()}
    if lengths.pairs >= ENOUGH:
        chosen |= {name: Threshold(value, "validation data") for name, value in lengths.limits().items()}
    chosen |= {_known(name): Threshold(_possible(name, value), "given") for name, value in given.items()}
    smallest, largest = (chosen[name].value for name in RATIOS)
    if smallest > largest:
        raise SettingError(f"--threshold: smallest_ratio {smallest:g} is above largest_ratio {largest:g}")
    return chosen


class Lengths:
    """The lengths of both sides of some pairs, and the ratios between them."""

    def __init__(self, source: NDArray[np.int64], target: NDArray[np.int64], ratios: NDArray[np.float64]) -> None:
        self.source, self.target, self.ratios = source, target, ratios
        self.pairs = len(source)

    @staticmethod
    def of(blocks: Iterable[Block]) -> "Lengths":
        some = list(blocks)
        source = [block.source.lengths for block in some]
        target = [block.target.lengths for block in some]
        empty = np.empty(0, np.int64)
        ratios = [length_ratios(block) for block in some]
        return Lengths(
            np.concatenate([empty, *source]), np.concatenate([empty, *target]), np.concatenate([empty, *ratios])
        )

    @property
    def median(self) -> float:
        return float(np.median(self.ratios))

    def limits(self) -> dict[str, float]:
        """What keeps the wanted share of these pairs: each length by itself, and half of the rest on each side of the ratios."""
        outside = (1 - KEPT) / 2
        return {
            "longest_source": float(np.quantile(self.source, KEPT, method="higher")),
            "longest_target": float(np.quantile(self.target, KEPT, method="higher")),
            "smallest_ratio": float(np.quantile(self.ratios, outside, method="lower")),
            "largest_ratio": float(np.quantile(self.ratios, 1 - outside, method="higher")),
        }


def _possible(name: str, value: float) -> float:
    most = 1.0 if name == "shared_ngrams" else float("inf")
    if not 0 <= value <= most:
        raise SettingError(f"--threshold {name}={value:g}: must be 0 or more{' and at most 1' if most == 1 else ''}")
    return value


def _known(name: str) -> str:
    if name not in BUILT_IN:
        close = difflib.get_close_matches(name, BUILT_IN, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(BUILT_IN)}"
        raise SettingError(f"--threshold {name}: no such threshold; {hint}")
    return name
