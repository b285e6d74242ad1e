"""What `transduce train` would do with a corpus: the settings it would choose and the pairs it would leave out.

Calls the functions that `train` calls, on the counts and the sample of an examination. Imports torch.
"""

import time
from dataclasses import dataclass
from typing import Any

from transduce.config import Config, flatten
from transduce.config.columns import Columns
from transduce.config.settings import DataConfig
from transduce.data import Scan
from transduce.data.scanning import side_of
from transduce.diagnosis.overview import Overview
from transduce.training.choices import CHOSEN, settings_of_new
from transduce.training.request import RequestedSettings
from transduce.translator import open_folder

_CHOSEN = ("model.", "train.", "data.")
_FILES = {"data.train", "data.valid", "data.cache", "data.hold_out", "train.start_from"}


@dataclass(frozen=True)
class Preview:
    """What a run on this corpus would be like."""

    task: str
    settings: dict[str, Any]  # those that are not at their defaults
    reasons: tuple[str, ...]
    left_out: dict[str, int]


def preview(overview: Overview, columns: Columns | None, requested: RequestedSettings) -> Preview:
    """The choices of `train`, with its reasons."""
    said: list[str] = []
    start = open_folder(requested.start_from) if requested.start_from else None
    shared = requested.config.data.vocabulary_from
    owner = open_folder(shared) if shared else start
    scanned = _scan(overview, bool(columns and columns.features))
    config = settings_of_new(scanned, requested, start, owner, {}, said.append, time.perf_counter())
    reasons = tuple(line.removeprefix(CHOSEN) for line in said)
    return Preview(config.data.task, _not_default(config), reasons, _left_out(overview, config.data))


def _scan(overview: Overview, features: bool) -> Scan:
    """What scanning the corpus would find; `train` takes a larger sample of large corpora."""
    sources, targets = ([pair[side] for pair in overview.sample] for side in (0, 1))
    counts = overview.corpora()
    return Scan(
        pairs=overview.pairs,
        groups=tuple(one.pairs for one in counts),
        content="",
        empty=overview.empty,
        identical=overview.identical,
        carriage_returns=0,
        byte_order_marks=0,
        blank=0,
        source=side_of(sum(one.source_characters for one in counts), sources),
        target=side_of(sum(one.target_characters for one in counts), targets),
        symbols=(";",) * features,
        sample=(sources, targets),
    )


def _not_default(config: Config) -> dict[str, Any]:
    usual = flatten(Config())
    return {
        name: value
        for name, value in flatten(config).items()
        if name.startswith(_CHOSEN) and name not in _FILES and value != usual.get(name)
    }


def _left_out(overview: Overview, data: DataConfig) -> dict[str, int]:
    """How many pairs are left out for which reason; a text has at least as many tokens as words, and `</s>`."""
    characters = data.source_units == data.target_units == "char"
    counts = {
        "empty": overview.empty,
        "identical": overview.identical if data.identical == "drop" else 0,
        f"longer than {data.max_length} {'characters' if characters else 'words'}": overview.longer_than(
            data.max_length - 1, characters
        ),
    }
    return {reason: count for reason, count in counts.items() if count}
