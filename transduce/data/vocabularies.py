"""Vocabularies learned from a scanned corpus, and kept in the cache: training one takes longer than reading it.

The sample is even over all pairs of all corpora: `data.weights` do not weigh it, so that a corpus that is seldom seen can
still be spelt, and runs that differ in nothing but weights share a vocabulary. Knows scans and the cache; how a
vocabulary is learned is `text`'s.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Literal

import sentencepiece

from transduce.config import DataConfig
from transduce.config.settings import Units
from transduce.data import cache
from transduce.data.scanning import Scan
from transduce.files import write_durably
from transduce.text import Vocabularies, Vocabulary, train_vocabulary

Sides = Literal["both", "source", "target"]

_MODEL = "model"


def learn_vocabularies(
    scan: Scan, settings: DataConfig, folder: Path, *, notify: Callable[[str], None] = cache.to_stderr
) -> Vocabularies:
    """The vocabulary of each side as the settings want it (their units resolved), from the cache or learned now."""
    if settings.joint:
        joint = _vocabulary(scan, settings, "both", settings.source_units, folder, notify)
        return Vocabularies(joint, joint)
    return Vocabularies(
        _vocabulary(scan, settings, "source", settings.source_units, folder, notify),
        _vocabulary(scan, settings, "target", settings.target_units, folder, notify),
    )


def _vocabulary(
    scan: Scan, settings: DataConfig, sides: Sides, units: Units, folder: Path, notify: Callable[[str], None]
) -> Vocabulary:
    assert units != "auto", "units are resolved before a vocabulary is learned"
    symbols = settings.symbols if sides == "target" else (*settings.symbols, *scan.symbols)
    learning = (units, settings.vocabulary_size, settings.unknown, settings.normalization, symbols)
    sample = (scan.content, len(scan.sample[0]), sides)
    name = "vocabulary-" + cache.entry_key(sample, learning, sentencepiece.__version__)

    def learn(path: Path) -> None:
        learned = train_vocabulary(
            _lines(scan, sides),
            units=units,
            size=settings.vocabulary_size,
            unknown=settings.unknown,
            normalization=settings.normalization,
            symbols=symbols,
        )
        write_durably(path / _MODEL, learned.model)

    return Vocabulary.load(cache.open_or_write(folder, name, learn, notify) / _MODEL)


def _lines(scan: Scan, sides: Sides) -> Iterable[str]:
    source, target = scan.sample
    return {"both": chain(source, target), "source": source, "target": target}[sides]
