"""Which of the two sides the words of a line are typical of, judged by the other lines of its block.

This needs no knowledge of languages and is fast, so it finds suspects for a language detector, which is slow. Works on whole
blocks of bytes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Side
from transduce.diagnosis.minhash import word_hashes

BUCKETS = 1 << 16
FEWEST_WORDS = 4  # of a line that is judged
COMMON = 1 / 2000  # share of the words of a side that makes a word common, such as articles and prepositions
STRANGE = 0.15  # a line with a smaller share of common words may be in a third language
FEWEST_STRANGE = 8  # words of a line that may be in a third language
OTHER = -0.5  # a line with a smaller mean score has words of the other side
FEWEST_LINES = 200  # of a block: with fewer, the words of a side are not known


@dataclass(frozen=True)
class Suspects:
    """Rows whose source or target may be in the wrong language."""

    like_other: tuple[NDArray[np.int64], NDArray[np.int64]]  # rows whose source, or target, has words of the other side
    strange: tuple[NDArray[np.int64], NDArray[np.int64]]  # rows whose source, or target, has few words of either side


NONE = np.empty(0, np.int64)


def suspects(block: Block) -> Suspects:
    """The rows that a language detector should look at."""
    if len(block) < FEWEST_LINES:
        return Suspects((NONE, NONE), (NONE, NONE))
    words = [_Words.of(side) for side in block.sides]
    usage = [np.bincount(side.buckets, minlength=BUCKETS) for side in words]
    shares = [np.log((counts + 0.5) / (counts.sum() + 0.5)) for counts in usage]
    preference = np.clip(shares[0] - shares[1], -4, 4)  # of each word for the source side
    like_other = [side.means(sign * preference) < OTHER for side, sign in zip(words, (1, -1), strict=True)]
    common = [np.where(counts >= max(3, COMMON * counts.sum()), 1.0, 0.0) for counts in usage]
    strange = [(side.means(np.maximum(*common)) < STRANGE) & (side.counts >= FEWEST_STRANGE) for side in words]
    enough = [side.counts >= FEWEST_WORDS for side in words]
    return Suspects(
        (np.flatnonzero(like_other[0] & enough[0]), np.flatnonzero(like_other[1] & enough[1])),
        (np.flatnonzero(strange[0]), np.flatnonzero(strange[1])),
    )


@dataclass(frozen=True)
class _Words:
    """The words of one side of a block, as numbers of buckets."""

    buckets: NDArray[np.int64]
    counts: NDArray[np.int64]  # words of each line
    ends: NDArray[np.int64]  # words before the end of each line

    @staticmethod
    def of(side: Side) -> "_Words":
        hashes, ends = word_hashes(side.bytes, side.ends)
        return _Words((hashes >> np.uint64(48)).astype(np.int64), np.diff(ends, prepend=0), ends)

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean value of the words of each line; 0 for a line without words."""
        totals = np.concatenate([[0.0], np.cumsum(values[self.buckets])])[self.ends]
        return np.diff(totals, prepend=0.0) / np.maximum(self.counts, 1)
