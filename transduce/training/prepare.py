"""From the user's files to everything a run needs: its settings, vocabularies and stores of ids.

Nothing is written into the run folder before everything has been checked. If the folder already holds a run, its stored
settings apply, and only budgets and logging may change.
"""

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from transduce.checkpoint import RunFolder, put_back, steps_saved
from transduce.config import Config, DataConfig, TrainConfig, language_tag, notes_on_old_names
from transduce.data import (
    Scan,
    absolute_setting,
    cache_folder,
    data_warnings,
    describe_columns,
    groups_from_setting,
    learn_vocabularies,
    remember_run,
)
from transduce.data.feature_progress import WatchFeatures, unwatched
from transduce.data.holding_out import hold_out
from transduce.errors import DataError
from transduce.memory import peak_resident
from transduce.text import Vocabularies
from transduce.training.choices import Say, reads_text, settings_of_new
from transduce.training.corpora import (
    Corpora,
    Scans,
    all_files,
    check_recordings,
    divided,
    inferred_settings,
    open_corpora,
    scan_and_report,
    scan_both,
)
from transduce.training.early_checks import check_free
from transduce.training.feed import TrainingData
from transduce.training.output_limit import fit_output_limit
from transduce.training.piece_length import fit_piece_length
from transduce.training.request import RequestedSettings
from transduce.training.resuming import check_files_are_there, settings_of_resumed
from transduce.training.run_files import check_resumable, check_unchanged, write_run
from transduce.training.stores import path_of, store_corpora
from transduce.training.warm_up import warming_up
from transduce.translator import ModelFolder, open_folder, read_config, read_vocabularies

LEARNING = "learning the vocabulary"

Inspect = Callable[[Scan, DataConfig], list[str]]


def no_findings(scan: Scan, data: DataConfig) -> list[str]:
    """The inspection of data that need none."""
    return []


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start or resume."""

    training_data: TrainingData
    start: ModelFolder | None  # the model a new run starts from
    about_data: list[str]
    content: dict[str, Any] = field(default_factory=dict)  # hashes of the data
    caching_seconds: float = 0.0  # to learn the vocabularies and to store the ids, or to find both in the cache
    reading_peak: int = 0  # the largest resident size until the data was read, in bytes
    before: TrainConfig | None = None  # the settings that a resumed run had


def prepare(
    folder: RunFolder,
    requested: RequestedSettings,
    say: Say,
    begun: float | None = None,
    inspect: Inspect = no_findings,
    watch: WatchFeatures = unwatched,
) -> Prepared:
    """Prepare a new run, or the existing one to resume, and write its first files into the folder."""
    put_back(folder)
    prepared = prepare_data(folder, requested, say, begun, inspect, watch)
    write_run(folder, prepared.training_data, prepared.content)
    remember_run(cache_folder(prepared.training_data.config.data.cache), folder.path)
    return prepared


def prepare_data(
    folder: RunFolder,
    requested: RequestedSettings,
    say: Say,
    begun: float | None = None,
    inspect: Inspect = no_findings,
    watch: WatchFeatures = unwatched,
) -> Prepared:
    """Everything that a new or resumed run needs. Fills the cache, but writes nothing into the folder.

    A budget in minutes counts from `begun`. `inspect` looks at the training data of a new run and returns warnings about it. `watch`
    shows the progress of computing the features of recordings.
    """
    for note in notes_on_old_names(*requested.layers):
        say(note)
    if folder.config.exists():
        return _prepare_resumed(folder, requested, say, watch)
    check_free(folder)
    return _prepare_new(folder, requested, say, time.perf_counter() if begun is None else begun, inspect, watch)


def _prepare_new(
    folder: RunFolder, requested: RequestedSettings, say: Say, begun: float, inspect: Inspect, watch: WatchFeatures
) -> Prepared:
    data = requested.config.data
    start = open_folder(requested.start_from) if requested.start_from else None
    owner = open_folder(data.vocabulary_from) if data.vocabulary_from else start
    with tempfile.TemporaryDirectory() as scratch:
        corpora = _corpora_of_new(requested.config, Path(scratch), say)
        scanned = scan_and_report(corpora, data, say)
        check_recordings(scanned, corpora.train, start)
        config = settings_of_new(scanned.train, requested, start, owner, inferred_settings(corpora, data), say, begun)
        for warning in [] if reads_text(config) else _warnings(scanned, config.data, inspect):
            say(warning)
        say(f"using the vocabulary{' and weights' * bool(start)} of {owner.folder.path}" if owner else LEARNING)
        if owner:
            _check_symbols(config.data, owner)
            for warning in _unknown_features(scanned.train, owner):
                say(warning)
        vocabularies = partial(_vocabularies_of_new, scanned.train, config.data, owner, say)
        prepared = _stored(config, vocabularies, corpora, scanned, start, say, watch)
    if reads_text(config):
        return prepared
    training_data = _with_piece_length(_with_output_limit(prepared.training_data, requested, say), requested, say)
    return replace(prepared, training_data=training_data)


def _corpora_of_new(config: Config, scratch: Path, say: Say) -> Corpora:
    """The corpora of a new run; without validation data, a part of the training data is held out."""
    corpora = open_corpora(config.data, scratch, infers=True)
    for line in [] if reads_text(config) else describe_columns(all_files(corpora)):
        say(line)
    return corpora if config.data.valid else divided(hold_out(corpora.train, say))


def _vocabularies_of_new(train: Scan, data: DataConfig, owner: ModelFolder | None, say: Say) -> Vocabularies:
    """Those of another run, or learned; without a source of text, the target vocabulary is the only one."""
    if owner is None:
        return learn_vocabularies(train, data, cache_folder(data.cache), notify=say)
    target = owner.vocabularies.target
    return Vocabularies(target, target) if data.task == "text" or train.audio else owner.vocabularies


def _stored(
    config: Config,
    vocabularies: Callable[[], Vocabularies],
    corpora: Corpora,
    scanned: Scans,
    start: ModelFolder | None,
    say: Say,
    watch: WatchFeatures,
) -> Prepared:
    """The run with its data in the cache. The device warms up while the vocabularies are learned and the data is stored."""
    begun, reading_peak = time.perf_counter(), peak_resident()
    with warming_up(config):
        training_data, about = store_corpora(config, vocabularies(), corpora, scanned, say, watch)
    return Prepared(training_data, start, about, scanned.content, time.perf_counter() - begun, reading_peak)


def _warnings(scanned: Scans, data: DataConfig, inspect: Inspect) -> list[str]:
    findings = [] if scanned.train.audio else inspect(scanned.train, data)
    return [*data_warnings(scanned.train, scanned.valid, data), *findings]


def _unknown_features(train: Scan, owner: ModelFolder) -> Iterator[str]:
    """A warning about features that the vocabulary of another run does not have."""
    missing = [symbol[1:] for symbol in train.symbols if symbol not in owner.vocabularies.source.feature_symbols]
    if missing:
        yield (
            f"warning: the vocabulary of {owner.folder.path} does not have these features, so the model cannot tell them apart: "
            f"{', '.join(missing)}; train a new model, or write them as that model does"
        )


def _check_symbols(data: DataConfig, start: ModelFolder) -> None:
    """Refuse language tags that the vocabulary of the model to start from does not have: they would be spelt in pieces."""
    known = start.vocabularies.source.language_tags
    for tag in map(language_tag, (*data.tags, *data.valid_tags)):
        if tag not in known:
            raise DataError(
                f"{start.folder.path}: its vocabulary has no symbol {tag}: train a new model with these languages"
            )


def _prepare_resumed(folder: RunFolder, requested: RequestedSettings, say: Say, watch: WatchFeatures) -> Prepared:
    stored = read_config(folder)
    check_resumable(folder)
    config = settings_of_resumed(stored, requested, folder.path)
    for line in _moved(stored.data, config.data, requested):
        say(line)
    check_files_are_there(config, requested)
    with tempfile.TemporaryDirectory() as scratch:
        corpora = open_corpora(config.data, Path(scratch))
        scanned = scan_and_report(corpora, config.data, say)
        check_unchanged(folder, scanned, requested)
        start_from = "" if steps_saved(folder) else config.train.start_from  # killed before its first checkpoint
        start = open_folder(start_from) if start_from else None
        vocabularies = partial(read_vocabularies, folder, config)
        prepared = _stored(config, vocabularies, corpora, scanned, start, say, watch)
    return replace(prepared, before=stored.train)


def prepare_elsewhere(config: Config, both: Vocabularies, names: tuple[str, str]) -> tuple[Path, Path]:
    """Prepare the data of a run on another machine: the stores must get these names, which are hashes of their content."""
    with tempfile.TemporaryDirectory() as scratch:
        corpora = open_corpora(config.data, Path(scratch))
        training_data, _ = store_corpora(config, both, corpora, scan_both(corpora, config.data), lambda text: None)
    paths = tuple(path_of(pairs) for pairs in (training_data.train, training_data.valid))
    for path, name, kind in zip(paths, names, ("training", "validation"), strict=True):
        if path.name != name:
            raise DataError(
                f"{socket.gethostname()}: the {kind} data on this machine differs from that of process 0; "
                "all machines need the same files"
            )
    return paths[0], paths[1]


def _moved(stored: DataConfig, now: DataConfig, requested: RequestedSettings) -> list[str]:
    """Messages about data files found in a new place, except for those that the user gave again."""
    lines = []
    for name, kind in (("train", "training"), ("valid", "validation")):
        was, is_now, given = (getattr(data, name) for data in (stored, now, requested.config.data))
        if not given and absolute_setting(was) != is_now:
            files = " ".join(path for group in groups_from_setting(is_now) for path in group)
            lines.append(f"the {kind} data has moved: reading {files}")
    return lines


def _with_piece_length(training_data: TrainingData, requested: RequestedSettings, say: Say) -> TrainingData:
    as_requested = any("piece_seconds" in layer.get("data", {}) for layer in requested.layers)
    if training_data.config.data.task != "speech" or as_requested:
        return training_data
    return replace(
        training_data, config=fit_piece_length(training_data.config, training_data.train.source_lengths, say)
    )


def _with_output_limit(training_data: TrainingData, requested: RequestedSettings, say: Say) -> TrainingData:
    as_requested = any("max_extra" in layer.get("search", {}) for layer in requested.layers)
    lengths = training_data.train.source_lengths, training_data.train.target_lengths
    return replace(training_data, config=fit_output_limit(training_data.config, *lengths, as_requested, say))
