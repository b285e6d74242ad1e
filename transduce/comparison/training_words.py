"""How often words of the test set are in the training data of a run, if that data is still there."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.comparison.groups import SourceUnits
from transduce.config import DataConfig
from transduce.data import Corpus, find, groups_from_setting
from transduce.errors import DataError

MOST_PAIRS = 5_000_000  # of the training data that are read


@dataclass(frozen=True)
class TrainingWords:
    """The counts of the words of a test set; None if there is no training data to count in. The note says what was read."""

    counts: Counter[str] | None
    note: str


def count_training_words(
    runs: Sequence[tuple[Path, DataConfig]], sources: Iterable[str], units: SourceUnits
) -> TrainingWords:
    """Count in the training data of the first run that has it. Only words of the test set are kept in memory."""
    if not runs:
        return TrainingWords(None, "no groups by training frequency: no system is a run folder")
    wanted = {one for source in sources for one in units.split(source)}
    reasons = []
    for run, data in runs:
        try:
            return _count(run, data, wanted, units)
        except DataError as error:
            reasons.append(str(error))
    return TrainingWords(None, f"no groups by training frequency: {reasons[0]}")


def _count(run: Path, data: DataConfig, wanted: set[str], units: SourceUnits) -> TrainingWords:
    groups = tuple(tuple(find(path, run) for path in group) for group in groups_from_setting(data.train))
    if not groups:
        raise DataError(f"{run}: the run names no training data")
    counts: Counter[str] = Counter()
    pairs = 0
    for block in Corpus.of(groups, data).blocks():
        pairs += len(block.source)
        for source in block.source:
            counts.update(one for one in units.split(source) if one in wanted)
        if pairs >= MOST_PAIRS:
            break
    return TrainingWords(counts, f"training frequencies: counted in {pairs:,} sources of {run}")
