"""Vocabularies: learned from the sample of a scanned corpus, and kept in the cache.

The sample is spread evenly over the pairs of all corpora. `data.weights` do not affect it, so that the texts of a corpus with
a small weight can still be written, and runs that differ only in weights share a vocabulary. This module knows scans and the
cache; `transduce/text.py` learns the vocabulary.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Literal

import sentencepiece

from transduce.config import DataConfig
from transduce.config.settings import Units
from transduce.data import cache
from transduce.data.inputs import groups_from_setting
from transduce.data.scanning import Scan
from transduce.errors import DataError
from transduce.files import write_durably
from transduce.text import Vocabularies, Vocabulary, train_vocabulary

Sides = Literal["both", "source", "target"]

VOCABULARY = "vocabulary-"  # how the names of entries of the cache begin
MODEL = "model"  # the file of an entry


def learn_vocabularies(
    scan: Scan, settings: DataConfig, folder: Path, *, notify: Callable[[str], None] = cache.to_stderr
) -> Vocabularies:
    """The vocabularies that the settings ask for, from the cache or learned now; `auto` units must be resolved."""
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
    symbols = settings.own_symbols if sides == "target" else (*settings.own_symbols, *scan.symbols)
    learning = (units, settings.vocabulary_size, settings.unknown, settings.normalization, symbols)
    sample = (scan.content, len(scan.sample[0]), sides)
    name = VOCABULARY + cache.entry_key(sample, learning, sentencepiece.__version__)

    def learn(path: Path) -> None:
        try:
            learned = train_vocabulary(
                _lines(scan, sides),
                units=units,
                size=settings.vocabulary_size,
                unknown=settings.unknown,
                normalization=settings.normalization,
                symbols=symbols,
            )
        except DataError as error:
            files = " ".join(file for group in groups_from_setting(settings.train) for file in group)
            raise DataError(f"{files}: {error}") from None
        write_durably(path / MODEL, learned.model)

    return Vocabulary.load(cache.open_or_write(folder, name, learn, notify) / MODEL)


def _lines(scan: Scan, sides: Sides) -> Iterable[str]:
    source, target = scan.sample
    if scan.audio:
        return target  # recordings have no letters
    return {"both": chain(source, target), "source": source, "target": target}[sides]
