"""The overview of a corpus: its size, the distribution of its lengths, and a sample of its pairs.

Reports no findings. The sample is what `transduce train` would fit its settings to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from transduce.data.scanning import is_empty
from transduce.diagnosis.analysis import Block, Context, Place
from transduce.diagnosis.findings import CorpusCount, Finding, Histogram, Statistics
from transduce.diagnosis.rules import Rows

LENGTH_EDGES = tuple(int(edge) for edge in np.unique(np.round(np.geomspace(1, 100_000, 76))))
RATIO_EDGES = tuple(float(edge) for edge in np.geomspace(1 / 32, 32, 61))
SAMPLED = 20_000  # pairs
EVERY = 8  # in a large corpus, the workers send only one pair in so many
ALL_UNTIL = 32_768  # lines of a file
SCATTERED = 2_000  # pairs of the scatter plot
MOST_WORDS = 4_096

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Observed:
    """What the overview needs to know about a block."""

    characters: tuple[int, int]
    lengths: tuple[Counts, Counts]
    ratios: Counts
    words: Counts  # pairs by the number of words of their longer side
    longest: Counts  # pairs by the number of characters of their longer side
    empty: int
    identical: int
    sample: list[tuple[str, str]]
    every: int


@dataclass
class _Sample:
    """Every n-th pair: when there are too many, every second is dropped and n doubles."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    every: int = 1
    seen: int = 0

    def add(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs += pairs[-self.seen % self.every :: self.every]
        self.seen += len(pairs)
        while len(self.pairs) > SAMPLED:
            self.pairs, self.every = self.pairs[::2], self.every * 2


class Overview:
    """Counts, histograms and a sample of one corpus."""

    name = "overview"

    def __init__(self, context: Context, groups: Sequence[tuple[str, ...]]) -> None:
        self.context = context
        self.pairs = self.empty = self.identical = 0
        self._groups = tuple(groups)
        self._by_group = np.zeros((len(groups), 3), np.int64)  # pairs, source characters, target characters
        self._lengths = [np.zeros(len(LENGTH_EDGES) - 1, np.int64) for _ in range(2)]
        self._ratios = np.zeros(len(RATIO_EDGES) - 1, np.int64)
        self.words = np.zeros(MOST_WORDS + 1, np.int64)
        self.longest = np.zeros(MOST_WORDS + 1, np.int64)
        self._beginning, self._spread = _Sample(), _Sample()
        self._spread_only = False

    def observe(self, block: Block) -> Observed:
        source, target = (side.lengths for side in block.sides)
        every = 1 if len(block) and block.place.lines[-1] <= ALL_UNTIL and block.place.group == 0 else EVERY
        texts = [[line.decode(errors="replace").rstrip("\r") for line in side.lines[::every]] for side in block.sides]
        short = np.flatnonzero((source < 30) | (target < 30))
        blank = [is_empty(*(side.lines[row].decode(errors="replace") for side in block.sides)) for row in short]
        return Observed(
            characters=(int(source.sum()), int(target.sum())),
            lengths=(_histogram(source, LENGTH_EDGES), _histogram(target, LENGTH_EDGES)),
            ratios=_histogram(target / np.maximum(source, 1), RATIO_EDGES),
            words=_counted(np.maximum(*(_words(side.data, side.ends) for side in block.sides))),
            longest=_counted(np.maximum(source, target)),
            empty=sum(blank),
            identical=int(np.count_nonzero(block.source.hashes == block.target.hashes)),
            sample=list(zip(*texts, strict=True)),
            every=every,
        )

    def add(self, place: Place, observed: Observed) -> None:
        self._by_group[place.group] += (len(place), *observed.characters)
        self.pairs += len(place)
        self.empty += observed.empty
        self.identical += observed.identical
        for total, some in zip(self._lengths, observed.lengths, strict=True):
            total += some
        self._ratios += observed.ratios
        self.words += observed.words
        self.longest += observed.longest
        self._spread.add(observed.sample[:: EVERY // observed.every])
        if observed.every == 1:
            self._beginning.add(observed.sample)
        else:
            self._spread_only = True

    @property
    def sample(self) -> list[tuple[str, str]]:
        """Pairs from the whole corpus; all of them if it is small."""
        return self._spread.pairs if self._spread_only else self._beginning.pairs

    def corpora(self) -> list[CorpusCount]:
        counts = self._by_group.tolist()
        return [CorpusCount(self.context.role, files, *row) for files, row in zip(self._groups, counts, strict=True)]

    def statistics(self) -> Statistics:
        sample = self.sample[:: max(1, -(-len(self.sample) // SCATTERED))]
        return Statistics(
            source_lengths=Histogram(LENGTH_EDGES, tuple(self._lengths[0].tolist())),
            target_lengths=Histogram(LENGTH_EDGES, tuple(self._lengths[1].tolist())),
            length_ratios=Histogram(RATIO_EDGES, tuple(self._ratios.tolist())),
            scatter=tuple((len(source), len(target)) for source, target in sample),
        )

    def longer_than(self, tokens: int, characters: bool) -> int:
        """How many pairs have a side of more than this many words, or characters."""
        counts = self.longest if characters else self.words
        return int(counts[min(tokens, MOST_WORDS) + 1 :].sum()) if tokens < MOST_WORDS else 0

    def finish(self) -> list[Finding]:
        return []

    def concerned(self) -> Mapping[str, Rows]:
        return {}


def _histogram(values: NDArray[np.generic], edges: Sequence[float]) -> Counts:
    """Counts between the edges; values beyond them count in the first and last bin."""
    bins = np.searchsorted(np.asarray(edges), values, side="right") - 1
    return np.bincount(np.clip(bins, 0, len(edges) - 2), minlength=len(edges) - 1)


def _words(data: bytes, ends: NDArray[np.int64]) -> Counts:
    spaces = np.flatnonzero(np.frombuffer(data, np.uint8) == 32)
    return np.diff(np.searchsorted(spaces, ends), prepend=0) + 1


def _counted(values: NDArray[np.int64]) -> Counts:
    return np.bincount(np.minimum(values, MOST_WORDS), minlength=MOST_WORDS + 1)
