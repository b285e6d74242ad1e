"""From the user's files to everything a run needs: its settings, vocabularies and stores of ids.

Nothing is written into the run folder before everything has been checked. If the folder already holds a run, its stored
settings apply, and only budgets and logging may change.
"""

import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.checkpoint import RunFolder, steps_saved, write_bytes, write_text
from transduce.config import Config, DataConfig, DecoderConfig, language_tag, notes_on_old_names, refuse_removed
from transduce.data import (
    Corpus,
    EmptyCorpus,
    Mixture,
    Rules,
    Scan,
    Store,
    TextCorpus,
    TextWindows,
    absolute_setting,
    cache_folder,
    data_warnings,
    describe_columns,
    groups_from_setting,
    infer_columns,
    learn_vocabularies,
    open_or_build,
    read_pairs,
    remember_run,
    scan,
    without_pipes,
)
from transduce.data.batches import Pairs
from transduce.data.feature_progress import WatchFeatures, unwatched
from transduce.data.holding_out import hold_out
from transduce.data.manifests import NAME_COLUMNS, look_like_recordings
from transduce.data.scanning import is_empty
from transduce.errors import DamagedFile, DataError, RunError, SettingError
from transduce.memory import peak_resident
from transduce.text import Vocabularies
from transduce.training.choices import Say, reads_text, settings_of_new
from transduce.training.early_checks import check_free
from transduce.training.feed import TrainingData
from transduce.training.output_limit import fit_output_limit
from transduce.training.request import RequestedSettings
from transduce.training.resuming import settings_of_resumed
from transduce.training.warm_up import warming_up
from transduce.translator import (
    ModelFolder,
    longest_target,
    open_folder,
    read_config,
    read_layers,
    read_vocabularies,
    write_config,
)
from transduce.translator.evaluation import TestSet, merges_references

if TYPE_CHECKING:
    from transduce.data.speech_store import SpeechStore

LEARNING = "learning the vocabulary"
NO_TEXTS = TestSet([], [])  # a language model translates nothing
VALIDATION_SAMPLE = 10_000  # at most this many validation pairs are searched for in the training data


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


def prepare(
    folder: RunFolder,
    requested: RequestedSettings,
    say: Say,
    begun: float | None = None,
    inspect: Inspect = no_findings,
    watch: WatchFeatures = unwatched,
) -> Prepared:
    """Prepare a new run, or the existing one to resume, and write its first files into the folder."""
    prepared = prepare_data(folder, requested, say, begun, inspect, watch)
    write_run(folder, prepared)
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

    A budget in minutes counts from `begun`. `inspect` looks at the training data of a new run and returns what people should
    know about it. `watch` shows how far the features of recordings are.
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
    with tempfile.TemporaryDirectory() as scratch:
        start = open_folder(requested.start_from) if requested.start_from else None
        data = requested.config.data
        owner = open_folder(data.vocabulary_from) if data.vocabulary_from else start
        corpora = _corpora(data, Path(scratch), infers=True)
        for line in [] if reads_text(requested.config) else describe_columns(_all_files(corpora)):
            say(line)
        if not data.valid:
            corpora = _divided(hold_out(corpora.train, say))
        scanned = _scan(corpora, data, say)
        _check_recordings(scanned, corpora.train, start)
        config = settings_of_new(scanned.train, requested, start, owner, _found(corpora, data), say, begun)
        for warning in [] if reads_text(config) else _warnings(scanned, config.data, inspect):
            say(warning)
        cache = cache_folder(config.data.cache)
        say(f"using the vocabulary{' and weights' * bool(start)} of {owner.folder.path}" if owner else LEARNING)
        if owner:
            _check_symbols(config.data, owner)
            for warning in _unknown_features(scanned.train, owner):
                say(warning)
        caching_begun, reading_peak = time.perf_counter(), peak_resident()
        with warming_up(config):
            if owner:
                both = _vocabularies_of(owner, config.data, scanned.train.audio)
            else:
                both = learn_vocabularies(scanned.train, config.data, cache, notify=say)
            prepared = _prepared(config, both, corpora, scanned, say, watch)
    training_data = prepared.training_data
    if not reads_text(config):
        training_data = _with_output_limit(training_data, requested, say)
    seconds = time.perf_counter() - caching_begun
    return replace(
        prepared, training_data=training_data, start=start, caching_seconds=seconds, reading_peak=reading_peak
    )


def _vocabularies_of(owner: ModelFolder, data: DataConfig, audio: bool) -> Vocabularies:
    """The vocabularies of another run; without a source of text, its target vocabulary is the only one."""
    target = owner.vocabularies.target
    return Vocabularies(target, target) if data.task == "text" or audio else owner.vocabularies


def _warnings(scanned: "_Scans", data: DataConfig, inspect: Inspect) -> list[str]:
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
    _check_resumable(folder)
    config = settings_of_resumed(stored, requested, folder.path)
    for line in _moved(stored.data, config.data, requested):
        say(line)
    with tempfile.TemporaryDirectory() as scratch:
        corpora = _corpora(config.data, Path(scratch))
        scanned = _scan(corpora, config.data, say)
        _check_unchanged(folder, scanned, requested)
        caching_begun, reading_peak = time.perf_counter(), peak_resident()
        with warming_up(config):
            prepared = _prepared(config, read_vocabularies(folder, config), corpora, scanned, say, watch)
    start_from = "" if steps_saved(folder) else config.train.start_from  # killed before its first checkpoint
    start = open_folder(start_from) if start_from else None
    seconds = time.perf_counter() - caching_begun
    return replace(prepared, start=start, caching_seconds=seconds, reading_peak=reading_peak)


def prepare_elsewhere(config: Config, both: Vocabularies, names: tuple[str, str]) -> tuple[Path, Path]:
    """Prepare the data of a run on another machine: the stores must get these names, which are hashes of their content."""
    with tempfile.TemporaryDirectory() as scratch:
        corpora = _corpora(config.data, Path(scratch))
        prepared = _prepared(config, both, corpora, _scan_both(corpora, config.data), lambda text: None)
    paths = tuple(store_of(pairs).path for pairs in (prepared.training_data.train, prepared.training_data.valid))
    for path, name, kind in zip(paths, names, ("training", "validation"), strict=True):
        if path.name != name:
            raise DataError(
                f"{socket.gethostname()}: the {kind} data on this machine differs from that of process 0; "
                "all machines need the same files"
            )
    return paths[0], paths[1]


def _check_resumable(folder: RunFolder) -> None:
    """Refuse to resume a run that uses a removed feature; its model can still translate."""
    try:
        refuse_removed(read_layers(folder))
    except SettingError as error:
        raise RunError(f"{folder.path}: this run cannot be resumed: {error}") from None


def _moved(stored: DataConfig, now: DataConfig, requested: RequestedSettings) -> list[str]:
    """Messages about data files found in a new place, except for those that the user gave again."""
    lines = []
    for name, kind in (("train", "training"), ("valid", "validation")):
        was, is_now, given = (getattr(data, name) for data in (stored, now, requested.config.data))
        if not given and absolute_setting(was) != is_now:
            files = " ".join(path for group in groups_from_setting(is_now) for path in group)
            lines.append(f"the {kind} data has moved: reading {files}")
    return lines


@dataclass(frozen=True)
class _Corpora:
    train: Corpus
    valid: Corpus

    @property
    def divided(self) -> bool:
        """Whether both are parts of the same files."""
        return self.train.is_divided


@dataclass(frozen=True)
class _Scans:
    train: Scan
    valid: Scan


def _corpora(data: DataConfig, scratch: Path, infers: bool = False) -> _Corpora:
    if not data.train:
        raise SettingError("no training data: give --train SOURCE TARGET, --train FILE.tsv, or --text FILE")
    train, valid = groups_from_setting(data.train), groups_from_setting(data.valid)
    plain = without_pipes((*train, *valid), scratch)
    if data.task == "text":
        corpus: Corpus = TextCorpus(plain[: len(train)])
    else:
        corpus = replace(Corpus.of(plain[: len(train)], data), tags=data.tags, placeholders=data.placeholders)
    if infers and not data.layout and data.task != "text":
        corpus = replace(corpus, columns=infer_columns(plain, data.languages))
    if valid:
        return _Corpora(corpus, replace(corpus, groups=plain[len(train) :], tags=data.tags_of_valid))
    return _divided(replace(corpus, hold_out=data.hold_out, speakers=data.hold_out_speakers))


def _all_files(corpora: _Corpora) -> Corpus:
    """The files of training and validation, to be described together."""
    return replace(corpora.train, groups=tuple(dict.fromkeys((*corpora.train.groups, *corpora.valid.groups))))


def _found(corpora: _Corpora, data: DataConfig) -> dict[str, Any]:
    """The settings of `data` that were inferred from the files."""
    columns = corpora.train.columns
    held_out = {"hold_out": corpora.train.hold_out, "hold_out_speakers": corpora.train.speakers}
    return {**held_out, **({"columns": columns.setting} if columns and not data.layout else {})}


def _divided(corpus: Corpus) -> _Corpora:
    return _Corpora(corpus, replace(corpus, part="held out"))


def _scan(corpora: _Corpora, data: DataConfig, say: Say) -> _Scans:
    say("reading the data")
    try:
        scans = _scan_both(corpora, data)
    except EmptyCorpus:
        if not corpora.divided:
            raise
        whole = replace(corpora.train, hold_out=0, speakers=())
        pairs = scan(whole, sample_pairs=1).pairs  # an empty corpus raises an error of its own
        if isinstance(corpora.train, TextCorpus):
            raise DataError(
                f"too little text ({pairs:,} lines) to hold any out for validation: give --valid-text"
            ) from None
        raise DataError(
            f"too few different sources ({pairs:,} pair{'s' * (pairs != 1)}) to hold any out for validation: "
            "give validation data with --valid"
        ) from None
    text = isinstance(corpora.train, TextCorpus)
    for name, scanned in (("training", scans.train), ("validation", scans.valid)):
        say(f"{name} data: {scanned.pairs:,} {'lines' if text else 'pairs'}{_oddities(scanned, text)}")
    return scans


def _scan_both(corpora: _Corpora, data: DataConfig) -> _Scans:
    """Scan the validation data first, because its pairs are then searched for in the training data."""
    try:
        valid = scan(corpora.valid, sample_pairs=VALIDATION_SAMPLE)
    except DataError:
        scan(corpora.train, sample_pairs=1)  # errors in the training data are reported first
        raise
    text = isinstance(corpora.train, TextCorpus)
    pairs = () if corpora.divided or text else zip(*valid.sample, strict=True)
    return _Scans(scan(corpora.train, sample_pairs=data.vocabulary_sample, look_for=pairs), valid)


def _check_recordings(scanned: _Scans, train: Corpus, start: ModelFolder | None) -> None:
    """Refuse recordings beside texts, be they in the validation data or what the model to start from knows."""
    recorded = scanned.train.audio
    if not recorded and look_like_recordings(scanned.train.sample[0]):
        raise DataError(f"{' '.join(train.groups[0])}: the sources are names of recordings: {NAME_COLUMNS}")
    if recorded and train.columns:
        raise SettingError(
            "data.columns: a table of recordings names its columns in its first line: leave out --columns"
        )
    if recorded != scanned.valid.audio:
        one, other = ("training", "validation") if recorded else ("validation", "training")
        raise DataError(f"the {one} data names recordings, but the {other} data does not: give two manifests")
    if start and recorded != (start.config.data.task == "speech"):
        found = "names recordings" if recorded else "is text"
        raise SettingError(
            f"{start.folder.path}: this model {start.config.data.what_it_does}, and the training data {found}: "
            "leave out --from, or start from a model of the same kind"
        )


def _oddities(scanned: Scan, text: bool) -> str:
    of_pairs = {"empty": scanned.empty, "source equal to target": scanned.identical}
    counts = {
        **({} if text else of_pairs),
        "carriage returns removed": scanned.carriage_returns,
        "byte order marks removed": scanned.byte_order_marks,
        "blank lines skipped": scanned.blank,
    }
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)


def _stores(
    config: Config, both: Vocabularies, corpora: _Corpora, scanned: _Scans, say: Say
) -> "tuple[Store | SpeechStore, Store | SpeechStore]":
    cache = cache_folder(config.data.cache)
    measured = Rules.for_validation(longest_target(config.model), config.data.holds_out)
    train = open_or_build(corpora.train, scanned.train, both, Rules.for_training(config.data), cache, notify=say)
    return train, open_or_build(corpora.valid, scanned.valid, both, measured, cache, notify=say)


def _speech_stores(
    config: Config, both: Vocabularies, corpora: _Corpora, scanned: _Scans, say: Say, watch: WatchFeatures
) -> "tuple[Store | SpeechStore, Store | SpeechStore]":
    from transduce.data.speech_store import SpeechRules, hours_of, open_or_build_speech

    cache, rules = cache_folder(config.data.cache), SpeechRules.for_training(config.data)
    measured = SpeechRules.for_validation(longest_target(config.model), config.data.trim_quiet)
    train = open_or_build_speech(corpora.train, scanned.train, both.target, rules, cache, notify=say, watch=watch)
    valid = open_or_build_speech(corpora.valid, scanned.valid, both.target, measured, cache, notify=say, watch=watch)
    say(f"{hours_of(train):.2f} hours of training and {hours_of(valid):.2f} hours of validation recordings")
    return train, valid


def _prepared(
    config: Config,
    both: Vocabularies,
    corpora: _Corpora,
    scanned: _Scans,
    say: Say,
    watch: WatchFeatures = unwatched,
) -> Prepared:
    if isinstance(corpora.train, TextCorpus):
        return _prepared_text(config, both, corpora, scanned, say)
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
    sources, targets = _validation_texts(corpora)
    merged = merges_references(config, sources)
    texts = TestSet.of(sources, targets, limit=config.train.validate_lines, merged=merged)
    return Prepared(
        training_data=TrainingData(config, both, train, valid, texts),
        start=None,
        about_data=about,
        content={"train": scanned.train.content, "valid": scanned.valid.content},
    )


def _validation_texts(corpora: _Corpora) -> tuple[list[str], list[str]]:
    """The validation pairs as texts. Given files are scored as they are; of held-out pairs, empty ones are left out."""
    sources, targets = read_pairs(replace(corpora.valid, placeholders=()))  # the translator masks and restores them
    if not corpora.divided:
        return sources, targets
    pairs = [pair for pair in zip(sources, targets, strict=True) if not is_empty(*pair)]
    return [source for source, _ in pairs], [target for _, target in pairs]


def _prepared_text(config: Config, both: Vocabularies, corpora: _Corpora, scanned: _Scans, say: Say) -> Prepared:
    """The same for a language model, which keeps every line."""
    cache = cache_folder(config.data.cache)
    train = open_or_build(corpora.train, scanned.train, both, Rules(), cache, notify=say)
    valid = open_or_build(corpora.valid, scanned.valid, both, Rules(), cache, notify=say)
    about = [f"training: {train.report.text_summary()}", f"validation: {valid.report.text_summary()}"]
    for line in [*about, *train.report.warnings()]:
        say(line)
    return Prepared(
        training_data=TrainingData(
            config, both, training_pairs(config, train), validation_pairs(config, valid), NO_TEXTS
        ),
        start=None,
        about_data=about,
        content={"train": scanned.train.content, "valid": scanned.valid.content},
    )


def training_pairs(config: Config, store: Store) -> Pairs:
    """The training pairs in a store; of a text, the windows of the first epoch."""
    return (
        validation_pairs(config, store)
        if not reads_text(config)
        else _windows(config, store).at_epoch(config.train.seed, 0)
    )


def validation_pairs(config: Config, store: Store) -> Pairs:
    return _windows(config, store) if reads_text(config) else store


def _windows(config: Config, store: Store) -> TextWindows:
    assert isinstance(config.model, DecoderConfig), "settings are checked before data are read"
    return TextWindows(store, config.model.context, config.data.documents)


def store_of(pairs: Pairs) -> Store:
    """The store that pairs, or windows of text, are read from."""
    store = pairs.store if isinstance(pairs, TextWindows) else pairs
    if not isinstance(store, Store):
        raise SettingError("speech models are trained by one process: run the command without torchrun")
    return store


def _with_output_limit(training_data: TrainingData, requested: RequestedSettings, say: Say) -> TrainingData:
    as_requested = any("max_extra" in layer.get("search", {}) for layer in requested.layers)
    lengths = training_data.train.source_lengths, training_data.train.target_lengths
    return replace(training_data, config=fit_output_limit(training_data.config, *lengths, as_requested, say))


def write_run(folder: RunFolder, prepared: Prepared) -> None:
    """Write the first files of a new run, or the changed settings of a resumed one."""
    config = prepared.training_data.config
    if not folder.config.exists():
        _write_folder(folder, config, prepared)
    elif config != read_config(folder):
        write_config(folder, config)


def _write_folder(folder: RunFolder, config: Config, prepared: Prepared) -> None:
    """Write the configuration last: a folder without one is not a run yet."""
    folder.path.mkdir(parents=True, exist_ok=True)
    both = prepared.training_data.vocabularies
    if config.data.joint:
        write_bytes(folder.vocabulary("joint"), both.source.model)
    else:
        write_bytes(folder.vocabulary("source"), both.source.model)
        write_bytes(folder.vocabulary("target"), both.target.model)
    write_text(folder.data, json.dumps(prepared.content) + "\n")
    write_config(folder, config)


def _check_unchanged(folder: RunFolder, scanned: _Scans, requested: RequestedSettings) -> None:
    try:
        known = json.loads(folder.data.read_text(encoding="utf-8"))
        known = {name: known[name] for name in ("train", "valid")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(
            f"{folder.data}: cannot be read ({error}); without this file the run cannot be resumed"
        ) from None
    for name, kind, now in (
        ("train", "training", scanned.train.content),
        ("valid", "validation", scanned.valid.content),
    ):
        if known[name] != now:
            option = requested.typed.get(f"data.{name}", "")
            remedy = f"leave out {option.split()[0]} to resume the run with its own data, or " if option else ""
            raise DataError(
                f"{folder.path}: {f'{option}: ' if option else ''}the {kind} data has changed since this run started: {remedy}use a new folder"
            )
