"""The store of a speech corpus: the features of every recording at each speed, and the ids of its text.

Built once on all cores and memory-mapped, as the store of texts is. Utterances that cannot be used are left out of training data,
listed by file and line, and counted by reason; in validation data, recordings that cannot be read are an error, since every line is scored.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.audio.features import BINS, FRAME_SECONDS
from transduce.audio.recording import Recording
from transduce.audio.soundfiles import AudioError
from transduce.audio.utterances import Features, features_at_speeds
from transduce.config import DataConfig
from transduce.config.models.speech import SHORTER
from transduce.data import cache
from transduce.data.augmentation import Augmentation
from transduce.data.corpus import Corpus, PairBlock
from transduce.data.feature_progress import ShowFeatures, WatchFeatures, unwatched
from transduce.data.ragged import Numbers, Ragged, RaggedWriter, Rows
from transduce.data.recorded_pairs import at_line
from transduce.data.scanning import Scan
from transduce.data.store import LEFT_OUT, STORE, Report, in_parallel
from transduce.errors import DataError
from transduce.files import write_durably
from transduce.text import UNKNOWN, Vocabularies, Vocabulary

# Since 2, short utterances share their statistics among bins; since 3, each reason for leaving out is counted; since 4, truncated WAV
# and Ogg files are left out.
FORMAT = 4
LISTED = 20  # utterances left out for a reason that are named; the others are counted
_AT_ONCE = 32  # utterances that a core works on
POSITION_MS = round(1000 * SHORTER * FRAME_SECONDS)  # of the encoder
_META = "meta.json"
_FEATURES = "<f2"


@dataclass(frozen=True)
class SpeechRules:
    """What is left out, and what is computed."""

    speeds: tuple[float, ...]  # the first one is 1
    longest_seconds: float
    longest_text: int  # tokens
    strict: bool  # whether an unusable recording is an error
    trim_quiet: float = 0.0  # decibels below the loud parts: quiet ends are removed

    @staticmethod
    def for_training(data: DataConfig) -> "SpeechRules":
        others = tuple(speed for speed in map(float, data.speeds) if speed != 1.0)
        return SpeechRules((1.0, *others), data.max_seconds, data.max_length, False, data.trim_quiet)

    @staticmethod
    def for_validation(longest_text: int, trim_quiet: float = 0.0) -> "SpeechRules":
        return SpeechRules((1.0,), 0.0, longest_text, True, trim_quiet)


@dataclass(frozen=True)
class LeftOut:
    """An utterance that is not in the store."""

    reason: str  # one of those of `Report`
    place: str  # file:line
    message: str


class SpeechStore:
    """Features and ids, in the order of the corpus."""

    def __init__(self, path: Path) -> None:
        meta = json.loads((path / _META).read_text())
        self.path = path
        self.report = Report.read(meta["report"])
        self.left_out = [LeftOut(**one) for one in meta["left_out"]]
        self.speeds: tuple[float, ...] = tuple(meta["speeds"])
        self.groups: tuple[int, ...] = tuple(meta["groups"])
        self.features = [Ragged(path, f"features{number}", _FEATURES) for number in range(len(self.speeds))]
        self.ids = Ragged(path, "target", meta["target_type"])
        self.source_lengths: NDArray[np.int32] = self.features[0].lengths // BINS
        self.target_lengths: NDArray[np.int32] = self.ids.lengths

    def summary(self) -> str:
        """A one-line summary, with an example of each reason for which utterances were left out."""
        first = {one.reason: Path(one.place).name for one in reversed(self.left_out)}
        return self.report.summary(first)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.path.iterdir())

    def source(self, index: int) -> Numbers:
        return self.at_speed(index, 0)  # type: ignore[return-value]

    def at_speed(self, index: int, speed: int) -> Features:
        """The features [N, 80] of an utterance."""
        return self.features[speed][index].reshape(-1, BINS)  # type: ignore[return-value]

    def target(self, index: int) -> Numbers:
        return self.ids[index]

    def sources(self, numbers: Numbers) -> Numbers:
        return np.concatenate([self.source(int(number)) for number in numbers])

    def targets(self, numbers: Numbers) -> Numbers:
        return self.ids.take(numbers)

    def augmented(self, data: DataConfig, seed: int, epoch: int) -> "AugmentedSpeech":
        """The recordings as an epoch uses them."""
        return AugmentedSpeech(self, Augmentation(data, seed, epoch))

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> "SpeechStore":
        raise AssertionError("refused by the settings: texts of recordings are not segmented anew")


class AugmentedSpeech:
    """The recordings of a store at random speeds, with random masks."""

    def __init__(self, store: SpeechStore, augmentation: Augmentation) -> None:
        self.store, self.augmentation = store, augmentation
        self.groups, self.target_lengths = store.groups, store.target_lengths
        wanted = [store.speeds.index(float(speed)) for speed in augmentation.data.speeds] or [0]
        self.speed = np.asarray(wanted)[augmentation.speeds(len(store.target_lengths))]
        lengths = np.stack([ragged.lengths for ragged in store.features]) // BINS
        self.source_lengths: NDArray[np.int32] = lengths[self.speed, np.arange(len(self.speed))]

    @property
    def size(self) -> int:
        return self.store.size

    def source(self, index: int) -> Numbers:
        features = self.store.at_speed(index, int(self.speed[index]))
        return self.augmentation.masked(features, index)  # type: ignore[return-value]

    def target(self, index: int) -> Numbers:
        return self.store.target(index)

    def sources(self, numbers: Numbers) -> Numbers:
        return np.concatenate([self.source(int(number)) for number in numbers])

    def targets(self, numbers: Numbers) -> Numbers:
        return self.store.targets(numbers)

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> "SpeechStore":
        return self.store.resampled(vocabularies, rate, seed, epoch)


def open_or_build_speech(
    corpus: Corpus,
    scan: Scan,
    vocabulary: Vocabulary,
    rules: SpeechRules,
    folder: Path,
    *,
    notify: Callable[[str], None] = cache.to_stderr,
    watch: WatchFeatures = unwatched,
) -> SpeechStore:
    """The store of this corpus, from the cache in `folder` or built now; unusable recordings are reported both times."""
    name = STORE + cache.entry_key("speech", FORMAT, scan.content, vocabulary.model, rules)

    def build(path: Path) -> None:
        notify(f"computing the features of {scan.pairs:,} recordings")
        pieces = in_parallel(partial(_encode, vocabulary, rules), _pieces(corpus))
        with watch(scan.pairs) as show:
            report = _write(_shown(pieces, show), vocabulary, corpus, rules, path)
        if report.kept == 0:
            raise DataError(_nothing_left(report, json.loads((path / _META).read_text())["left_out"][0]))

    store = SpeechStore(cache.open_or_write(folder, name, build, notify))
    for line in _listed(store):
        notify(f"left out: {line}")
    return store


def _shown(pieces: "Iterator[_Encoded]", show: ShowFeatures) -> "Iterator[_Encoded]":
    """The pieces; after each, it is shown how many recordings are done and how long they are."""
    report = Report()
    for piece in pieces:
        report += piece.report
        show(report.pairs, report.source_tokens * FRAME_SECONDS / 3600)
        yield piece


def _listed(store: SpeechStore) -> Iterator[str]:
    """The utterances that were left out, by reason; at most `LISTED` of each are named."""
    for reason in LEFT_OUT:
        named = [one for one in store.left_out if one.reason == reason]
        yield from (f"{one.place}: {one.message}" for one in named)
        if more := getattr(store.report, reason) - len(named):
            yield f"{replace(store.report, **{reason: more}).left_out(reason)}, in other lines"


def _nothing_left(report: Report, first: dict[str, str]) -> str:
    where = "" if first["reason"] != "unusable" else " (paths are relative to the table)"
    return (
        f"no recording is left to train on: {report.summary()}; the first: {first['place']}: {first['message']}{where}"
    )


@dataclass(frozen=True)
class _Encoded:
    arrays: dict[str, Rows]
    report: Report
    left_out: list[LeftOut]
    group: int


def _pieces(corpus: Corpus) -> Iterator[PairBlock]:
    """The blocks of a corpus in pieces that are quick to compute."""
    for block in corpus.blocks():
        for begin in range(0, len(block.source), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            yield replace(block, source=block.source[part], target=block.target[part], places=block.places[part])


def _encode(vocabulary: Vocabulary, rules: SpeechRules, block: PairBlock) -> _Encoded:
    sounds: list[list[Features]] = []
    ids: list[list[int]] = []
    left_out: list[LeftOut] = []
    for source, target, place in zip(block.source, vocabulary.encode(block.target), block.places, strict=True):
        found = _utterance(source, target, place, rules)
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            sounds.append(found)
            ids.append(target)
    return _encoded(sounds, ids, vocabulary, _report(block, ids, left_out), left_out, block.group)


def _utterance(source: str, target: list[int], place: str, rules: SpeechRules) -> list[Features] | LeftOut:
    """The features of a recording at each speed, or why it is left out."""
    recording = Recording.parse(source)
    try:
        features = features_at_speeds(recording, rules.speeds, rules.longest_seconds, rules.trim_quiet)
        return _unfit(features[0], target, place, rules) or features
    except AudioError as error:
        if rules.strict:
            raise at_line(error, place) from None
        return LeftOut("long_recordings" if error.reason == "too long" else "unusable", place, str(error))


def _unfit(features: Features, target: list[int], place: str, rules: SpeechRules) -> LeftOut | None:
    """Why a recording and its text are left out, or None. CTC needs at least one position of the encoder for each token."""
    tokens, positions = len(target) - 1, -(-len(features) // SHORTER)
    if not tokens and not rules.strict:
        return LeftOut("empty", place, "the transcript is empty")
    if len(target) > rules.longest_text:
        limit = f"{rules.longest_text - 1:,}{'' if rules.strict else ' (data.max_length)'}"
        return LeftOut("long_transcripts", place, f"the transcript is too long: {tokens:,} tokens of at most {limit}")
    if tokens > positions and not rules.strict:
        message = (
            f"the transcript is too long for its recording: {tokens:,} tokens, but CTC has {positions:,} positions"
        )
        return LeftOut("unalignable", place, f"{message} of {POSITION_MS} ms")
    return None


def _report(block: PairBlock, ids: list[list[int]], left_out: list[LeftOut]) -> Report:
    return Report(pairs=len(block.source), kept=len(ids), **Counter(one.reason for one in left_out))


def _encoded(
    sounds: list[list[Features]],
    ids: list[list[int]],
    vocabulary: Vocabulary,
    counts: Report,
    left_out: list[LeftOut],
    group: int,
) -> _Encoded:
    by_speed = zip(*sounds, strict=True)
    arrays = {f"features{number}": _rows(list(features)) for number, features in enumerate(by_speed)}
    target = Rows.of_ids(ids, _id_type(vocabulary))
    report = replace(
        counts,
        source_tokens=sum(len(features[0]) for features in sounds),
        target_tokens=len(target.values),
        target_unknown=int(np.count_nonzero(target.values == UNKNOWN)),
    )
    return _Encoded({**arrays, "target": target}, report, left_out, group)


def _rows(features: list[Features]) -> Rows:
    lengths = np.fromiter((one.size for one in features), "<i4", len(features))
    return Rows(np.concatenate([one.ravel() for one in features]).astype(_FEATURES), lengths)


def _write(
    pieces: Iterator[_Encoded], vocabulary: Vocabulary, corpus: Corpus, rules: SpeechRules, path: Path
) -> Report:
    report, left_out, kept = Report(), list[LeftOut](), [0] * len(corpus.groups)
    names = [*(f"features{number}" for number in range(len(rules.speeds))), "target"]
    with ExitStack() as files:
        writers = {name: files.enter_context(RaggedWriter(path, name)) for name in names}
        for piece in pieces:
            for name, rows in piece.arrays.items():
                writers[name].append(rows)
            report += piece.report
            left_out += piece.left_out
            kept[piece.group] += piece.report.kept
    meta = {
        "report": asdict(report),
        "left_out": [asdict(one) for one in _first_of_each(left_out)],
        "speeds": rules.speeds,
        "groups": kept,
        "target_type": _id_type(vocabulary),
    }
    write_durably(path / _META, json.dumps(meta, indent=1).encode())
    return report


def _first_of_each(left_out: list[LeftOut]) -> list[LeftOut]:
    """The first utterances of each reason."""
    seen: Counter[str] = Counter()
    kept = []
    for one in left_out:
        seen[one.reason] += 1
        if seen[one.reason] <= LISTED:
            kept.append(one)
    return kept


def hours_of(store: SpeechStore) -> float:
    """How long the recordings of a store are together."""
    return float(store.source_lengths.sum()) * FRAME_SECONDS / 3600


def _id_type(vocabulary: Vocabulary) -> str:
    return "<u2" if vocabulary.size <= 1 << 16 else "<u4"
