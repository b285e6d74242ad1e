"""The corpora of a run: its training and validation files, read once and checked against each other.

Knows files and texts; vocabularies, ids and the run folder come later.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transduce.config import DataConfig
from transduce.data import (
    Corpus,
    EmptyCorpus,
    Scan,
    TextCorpus,
    groups_from_setting,
    infer_columns,
    read_pairs,
    scan,
    without_pipes,
)
from transduce.data.manifests import NAME_COLUMNS, look_like_recordings
from transduce.data.scanning import is_empty
from transduce.errors import DataError, SettingError
from transduce.training.choices import Say
from transduce.translator import ModelFolder

VALIDATION_SAMPLE = 10_000  # at most this many validation pairs are searched for in the training data


@dataclass(frozen=True)
class Corpora:
    """The training and the validation data of a run."""

    train: Corpus
    valid: Corpus

    @property
    def divided(self) -> bool:
        """Whether both are parts of the same files."""
        return self.train.is_divided


@dataclass(frozen=True)
class Scans:
    """What was found when the training and the validation data were read."""

    train: Scan
    valid: Scan

    @property
    def content(self) -> dict[str, Any]:
        """Hashes of the data, by which a resumed run recognises it."""
        return {"train": self.train.content, "valid": self.valid.content}


def open_corpora(data: DataConfig, scratch: Path, infers: bool = False) -> Corpora:
    """The corpora of these settings; `infers`: of a new run, whose columns are inferred from the files and checked."""
    if not data.train:
        raise SettingError("no training data: give --train SOURCE TARGET, --train FILE.tsv, or --text FILE")
    train, valid = groups_from_setting(data.train), groups_from_setting(data.valid)
    plain = without_pipes((*train, *valid), scratch)
    if data.task == "text":
        corpus: Corpus = TextCorpus(plain[: len(train)])
    else:
        corpus = replace(Corpus.of(plain[: len(train)], data), tags=data.tags, placeholders=data.placeholders)
    if not infers:  # runs that began when additional columns were read over can be resumed
        corpus = replace(corpus, extra_columns=True)
    elif not data.layout and data.task != "text":
        corpus = replace(corpus, columns=infer_columns(plain, data.languages))
    if valid:
        return Corpora(corpus, replace(corpus, groups=plain[len(train) :], tags=data.tags_of_valid))
    return divided(replace(corpus, hold_out=data.hold_out, speakers=data.hold_out_speakers))


def divided(corpus: Corpus) -> Corpora:
    return Corpora(corpus, replace(corpus, part="held out"))


def all_files(corpora: Corpora) -> Corpus:
    """The files of training and validation, to be described together."""
    return replace(corpora.train, groups=tuple(dict.fromkeys((*corpora.train.groups, *corpora.valid.groups))))


def inferred_settings(corpora: Corpora, data: DataConfig) -> dict[str, Any]:
    """The settings of `data` that were inferred from the files."""
    columns = corpora.train.columns
    held_out = {"hold_out": corpora.train.hold_out, "hold_out_speakers": corpora.train.speakers}
    return {**held_out, **({"columns": columns.setting} if columns and not data.layout else {})}


def scan_and_report(corpora: Corpora, data: DataConfig, say: Say) -> Scans:
    say("reading the data")
    try:
        scans = scan_both(corpora, data)
    except EmptyCorpus:
        if not corpora.divided:
            raise
        whole = replace(corpora.train, hold_out=0, speakers=())
        pairs = scan(whole, sample_pairs=1).pairs  # an empty corpus raises an error of its own
        if isinstance(corpora.train, TextCorpus):
            raise DataError(
                f"too little text ({pairs:,} line{'s' * (pairs != 1)}) to hold any out for validation, which takes whole lines: "
                "give --valid-text"
            ) from None
        raise DataError(
            f"too few different sources ({pairs:,} pair{'s' * (pairs != 1)}) to hold any out for validation: "
            "give validation data with --valid"
        ) from None
    text = isinstance(corpora.train, TextCorpus)
    for name, scanned in (("training", scans.train), ("validation", scans.valid)):
        say(f"{name} data: {scanned.pairs:,} {'lines' if text else 'pairs'}{_oddities(scanned, text)}")
    return scans


def scan_both(corpora: Corpora, data: DataConfig) -> Scans:
    """Scan the validation data first, because its pairs are then searched for in the training data."""
    try:
        valid = scan(corpora.valid, sample_pairs=VALIDATION_SAMPLE)
    except DataError:
        scan(corpora.train, sample_pairs=1)  # errors in the training data are reported first
        raise
    text = isinstance(corpora.train, TextCorpus)
    pairs = () if corpora.divided or text else zip(*valid.sample, strict=True)
    return Scans(scan(corpora.train, sample_pairs=data.vocabulary_sample, look_for=pairs), valid)


def _oddities(scanned: Scan, text: bool) -> str:
    of_pairs = {"empty": scanned.empty, "source equal to target": scanned.identical}
    counts = {
        **({} if text else of_pairs),
        "carriage returns removed": scanned.carriage_returns,
        "byte order marks removed": scanned.byte_order_marks,
        "blank lines skipped": scanned.blank,
    }
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)


def check_recordings(scanned: Scans, train: Corpus, start: ModelFolder | None) -> None:
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


def validation_texts(corpora: Corpora) -> tuple[list[str], list[str]]:
    """The validation pairs as texts. Given files are scored as they are; of held-out pairs, empty ones are left out."""
    sources, targets = read_pairs(replace(corpora.valid, placeholders=()))  # the translator masks and restores them
    if not corpora.divided:
        return sources, targets
    pairs = [pair for pair in zip(sources, targets, strict=True) if not is_empty(*pair)]
    return [source for source, _ in pairs], [target for _, target in pairs]
