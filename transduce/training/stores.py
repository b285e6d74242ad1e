"""From corpora to training data: ids or features, stored in the cache, which are built once and found again later."""

from pathlib import Path
from typing import TYPE_CHECKING

from transduce.config import Config, DataConfig, DecoderConfig
from transduce.data import (
    Mixture,
    Rules,
    Store,
    TextCorpus,
    TextWindows,
    cache_folder,
    groups_from_setting,
    open_or_build,
)
from transduce.data.batches import Pairs, Stored
from transduce.data.feature_progress import WatchFeatures, unwatched
from transduce.text import Vocabularies
from transduce.training.choices import Say, reads_text
from transduce.training.corpora import Corpora, Scans, validation_texts
from transduce.training.feed import TrainingData
from transduce.translator import longest_target
from transduce.translator.evaluation import TestSet, merges_references

if TYPE_CHECKING:
    from transduce.data.speech_store import SpeechStore

NO_TEXTS = TestSet([], [])  # a language model translates nothing


def store_corpora(
    config: Config,
    both: Vocabularies,
    corpora: Corpora,
    scanned: Scans,
    say: Say,
    watch: WatchFeatures = unwatched,
) -> tuple[TrainingData, list[str]]:
    """The training data of a run, stored in the cache, and warnings about it."""
    if isinstance(corpora.train, TextCorpus):
        return _store_text(config, both, corpora, scanned, say)
    if scanned.train.audio:
        train, valid = _speech_stores(config, both, corpora, scanned, say, watch)
    else:
        train, valid = _stores(config, both, corpora, scanned, say)
    mixture = Mixture.of(train.groups, config.data.weights)
    mixture.check()
    names = [" ".join(Path(file).name for file in group) for group in groups_from_setting(config.data.train)]
    about = [
        f"training: {train.summary()}",
        *(mixture.summary(names) if len(names) > 1 or config.data.weights else []),
        f"validation: {valid.summary()}",
    ]
    for line in [*about, *train.report.warnings()]:
        say(line)
    sources, targets = validation_texts(corpora)
    merged = merges_references(config, sources)
    texts = TestSet.of(sources, targets, limit=config.train.validate_lines, merged=merged)
    return TrainingData(config, both, train, valid, texts), about


def _store_text(
    config: Config, both: Vocabularies, corpora: Corpora, scanned: Scans, say: Say
) -> tuple[TrainingData, list[str]]:
    """The same for a language model, which keeps every line."""
    cache = cache_folder(config.data.cache)
    train = open_or_build(corpora.train, scanned.train, both, Rules(), cache, notify=say)
    valid = open_or_build(corpora.valid, scanned.valid, both, Rules(), cache, purpose="validate", notify=say)
    named = ("training", train.report), ("validation", valid.report)
    about = [f"{name}: {report.text_summary()}" for name, report in named]
    about += [warning for name, report in named for warning in report.text_warnings(name)]
    for line in about:
        say(line)
    pairs = training_pairs(config, train), validation_pairs(config, valid)
    return TrainingData(config, both, *pairs, NO_TEXTS), about


def _stores(
    config: Config, both: Vocabularies, corpora: Corpora, scanned: Scans, say: Say
) -> "tuple[Store | SpeechStore, Store | SpeechStore]":
    cache = cache_folder(config.data.cache)
    measured = Rules.for_validation(longest_target(config.model), config.data.holds_out)
    train = open_or_build(corpora.train, scanned.train, both, Rules.for_training(config.data), cache, notify=say)
    return train, open_or_build(corpora.valid, scanned.valid, both, measured, cache, purpose="validate", notify=say)


def _speech_stores(
    config: Config, both: Vocabularies, corpora: Corpora, scanned: Scans, say: Say, watch: WatchFeatures
) -> "tuple[Store | SpeechStore, Store | SpeechStore]":
    from transduce.data.speech_store import SpeechRules, hours_of, open_or_build_speech

    cache, rules = cache_folder(config.data.cache), SpeechRules.for_training(config.data)
    measured = SpeechRules.for_validation(longest_target(config.model), config.data.trim_quiet)
    train = open_or_build_speech(corpora.train, scanned.train, both.target, rules, cache, notify=say, watch=watch)
    valid = open_or_build_speech(corpora.valid, scanned.valid, both.target, measured, cache, notify=say, watch=watch)
    say(f"{hours_of(train):.2f} hours of training and {hours_of(valid):.2f} hours of validation recordings")
    return train, valid


def open_store(data: DataConfig, path: Path) -> "Store | SpeechStore":
    """A store that this process or another one has written."""
    if data.task != "speech":
        return Store(path)
    from transduce.data.speech_store import SpeechStore

    return SpeechStore(path)


def training_pairs(config: Config, store: "Store | SpeechStore") -> Pairs:
    """The training pairs in a store; of a text, the windows of the first epoch."""
    return (
        validation_pairs(config, store)
        if not reads_text(config)
        else _windows(config, store).at_epoch(config.train.seed, 0)
    )


def validation_pairs(config: Config, store: "Store | SpeechStore") -> Pairs:
    return _windows(config, store) if reads_text(config) else store


def _windows(config: Config, store: "Store | SpeechStore") -> TextWindows:
    assert isinstance(config.model, DecoderConfig), "settings are checked before data are read"
    assert isinstance(store, Store), "recordings are no text"
    return TextWindows(store, config.model.context, config.data.documents)


def path_of(pairs: Pairs) -> Path:
    """The store that pairs, or windows of text, are read from."""
    store = pairs.store if isinstance(pairs, TextWindows) else pairs
    assert isinstance(store, Stored), "the data of a run are in the cache"
    return store.path
