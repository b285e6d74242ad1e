"""The store: a corpus as token ids, built once on all cores, memory-mapped, and reused by later runs.

A store is an entry of the cache. Its key is made from the pairs, the vocabularies and the rules. This module knows no
tensors and no batches.
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.config import DataConfig
from transduce.cores import available_cores
from transduce.data import cache
from transduce.data.corpus import LINES_PER_BLOCK, Corpus, PairBlock, are_equal
from transduce.data.feature_symbols import FeatureEncoder
from transduce.data.ragged import Numbers, Ragged, RaggedWriter, Rows
from transduce.data.scanning import Scan, is_empty
from transduce.errors import DataError
from transduce.files import write_durably
from transduce.text import UNKNOWN, Vocabularies

FORMAT = 2  # since 2, a store says how many pairs of each group were kept
MOST_EPOCHS = 200  # whose sampled segmentations are kept, even if the checkpoints of a run are further apart

STORE, SAMPLED = "store-", "sampled-"  # how the names of entries of the cache begin
_META = "meta.json"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which pairs are left out of the store, and whether texts are kept for sampled segmentation.

    The defaults leave nothing out: validation and test data are scored as they were given.
    """

    max_length: int = 0  # tokens, `</s>` included; 0: any
    drop_empty: bool = False
    drop_identical: bool = False
    keep_text: bool = False

    @classmethod
    def for_validation(cls, longest: int, held_out: bool = False) -> Self:
        """Only the loss leaves out pairs that are too long for the model; metrics use all lines.

        Empty pairs are left out of validation data that are held out of the training data, as they are there.
        """
        return cls(max_length=longest, drop_empty=held_out)

    @classmethod
    def for_training(cls, settings: DataConfig) -> Self:
        return cls(
            max_length=settings.max_length,
            drop_empty=True,
            drop_identical=settings.identical == "drop",
            keep_text=settings.subword_sampling > 0,
        )


LEFT_OUT = {  # why pairs are left out: the name of the count, and what people read after it
    "empty": "empty",
    "identical": "identical",
    "too_long": "too long",
    "long_recordings": "recording{s} longer than data.max_seconds",
    "long_transcripts": "transcript{s} with too many tokens",
    "unalignable": "transcript{s} too long for CTC on the recording{s}",
    "unusable": "unusable recording{s}",
}
MANY_UNKNOWN = 0.1  # share of unknown tokens above which a warning is due
MANY_UNKNOWN_IN_TEXT = 0.01  # each is a character that need not be predicted: bits per byte look better


NO_EXAMPLES: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Report:
    """How many pairs of a corpus were kept, how many were left out and why, and how many tokens are unknown."""

    pairs: int = 0
    kept: int = 0
    empty: int = 0
    identical: int = 0
    too_long: int = 0
    long_recordings: int = 0
    long_transcripts: int = 0
    unalignable: int = 0  # transcripts with more tokens than the encoder has positions for the recording
    unusable: int = 0  # recordings that cannot be read
    source_tokens: int = 0
    target_tokens: int = 0
    source_unknown: int = 0
    target_unknown: int = 0
    target_bytes: int = 0  # of the texts in UTF-8, with a line break for each; 0 in stores of earlier versions

    @classmethod
    def read(cls, counts: Mapping[str, int]) -> Self:
        """The report of a store, which may be of another version: counts that this one does not know are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: count for name, count in counts.items() if name in known})

    def __add__(self, other: "Report") -> "Report":
        mine, others = asdict(self), asdict(other)
        return Report(**{name: mine[name] + others[name] for name in mine})

    def left_out(self, name: str) -> str:
        """How many pairs were left out for a reason of `LEFT_OUT`, in words."""
        count: int = getattr(self, name)
        return f"{count:,} {LEFT_OUT[name].format(s='s' * (count != 1))}"

    def summary(self, examples: Mapping[str, str] = NO_EXAMPLES) -> str:
        """A one-line summary, with a place for each reason that has an example; counts of 0 are not mentioned."""
        such_as = {name: f" such as {place}" for name, place in examples.items()}
        left_out = ", ".join(self.left_out(name) + such_as.get(name, "") for name in LEFT_OUT if getattr(self, name))
        unknown = self.source_unknown + self.target_unknown
        return (
            f"{self.kept:,} of {self.pairs:,} pairs"
            + (f" (left out: {left_out})" if left_out else "")
            + f", {self.source_tokens:,} source and {self.target_tokens:,} target tokens"
            + (f", of which {self.source_unknown:,} and {self.target_unknown:,} are unknown" if unknown else "")
        )

    def text_summary(self) -> str:
        """A one-line summary of running text."""
        unknown = f", of which {self.target_unknown:,} are unknown" if self.target_unknown else ""
        return f"{self.pairs:,} lines, {self.target_bytes:,} bytes, {self.target_tokens:,} tokens{unknown}"

    def text_warnings(self, kind: str) -> list[str]:
        """A warning if so much of a text is unknown that its bits per byte mislead."""
        if self.target_unknown <= MANY_UNKNOWN_IN_TEXT * self.target_tokens:
            return []
        return [
            f"warning: {self.target_unknown:,} of {self.target_tokens:,} {kind} tokens are not in the vocabulary. The model does not "
            "predict which characters they are, so bits per byte look better than they are: set data.target_units=bpe and data.unknown=bytes"
        ]

    def warnings(self) -> list[str]:
        """One warning for each side whose tokens are often unknown to its vocabulary."""
        sides = ("source", self.source_unknown, self.source_tokens), ("target", self.target_unknown, self.target_tokens)
        return [
            f"warning: {unknown:,} of {tokens - self.kept:,} {side} tokens are not in the vocabulary, so the model cannot "
            f"tell them apart: set data.{side}_units=char, or data.unknown=bytes with subwords"
            for side, unknown, tokens in sides
            if unknown > MANY_UNKNOWN * (tokens - self.kept)  # without `</s>`
        ]


class Store:
    """Pairs of ids, each side ending in `</s>`, in the order of the corpus and its groups."""

    def __init__(self, path: Path) -> None:
        meta = json.loads((path / _META).read_text())
        self.path = path
        self.report = Report.read(meta["report"])
        self.rules = Rules(**meta["rules"])
        self.groups: tuple[int, ...] = tuple(meta["groups"])  # pairs kept of each group of the corpus
        self._source = Ragged(path, "source", meta["source_type"])
        self._target = Ragged(path, "target", meta["target_type"])
        self.source_lengths: NDArray[np.int32] = self._source.lengths
        self.target_lengths: NDArray[np.int32] = self._target.lengths
        self._sampled: dict[int, Path] = {}  # the entries of the cache that `resampled` has opened, by epoch

    def __len__(self) -> int:
        return len(self._source)

    def summary(self) -> str:
        """A one-line summary."""
        return self.report.summary()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.path.iterdir())

    def source(self, index: int) -> Numbers:
        return self._source[index]

    def target(self, index: int) -> Numbers:
        return self._target[index]

    @property
    def target_ids(self) -> Numbers:
        """All targets end to end."""
        return self._target.values

    def sources(self, numbers: Numbers) -> Numbers:
        """The sources of several pairs, end to end."""
        return self._source.take(numbers)

    def targets(self, numbers: Numbers) -> Numbers:
        return self._target.take(numbers)

    def resampled(self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int) -> "Store":
        """The same pairs in another random segmentation, one for each (seed, epoch).

        The segmentation is kept in the cache so that a resumed run uses the same one: sentencepiece repeats its random
        numbers from a seed within a process, but not in another process.
        """
        assert self.rules.keep_text, "a store built with data.subword_sampling = 0 has no text"
        resample = partial(self._resampled_block, vocabularies, rate, seed, epoch)

        def build(path: Path) -> None:
            blocks, rules = in_parallel(resample, self._stretches()), replace(self.rules, keep_text=False)
            _write(blocks, vocabularies, rules, len(self.groups), path)

        name = f"{sampled_name(self.path.name, rate, seed)}{epoch}"
        self._sampled[epoch] = cache.open_or_write(self.path.parent, name, build, cache.to_stderr)
        self.forget_sampled(before=epoch - MOST_EPOCHS + 1)
        return Store(self._sampled[epoch])

    def forget_sampled(self, before: int) -> None:
        """Remove the segmentations of epochs before this one, when no checkpoint can resume there."""
        for epoch, entry in list(self._sampled.items()):  # a thread may be sampling the next epoch
            if epoch < before:
                shutil.rmtree(entry, ignore_errors=True)
                self._sampled.pop(epoch, None)

    def _stretches(self) -> "Iterator[_Stretch]":
        group_begin = 0
        for group, pairs in enumerate(self.groups):
            group_end = group_begin + pairs
            for begin in range(group_begin, group_end, LINES_PER_BLOCK):
                yield _Stretch(group, begin, min(begin + LINES_PER_BLOCK, group_end))
            group_begin = group_end

    def _resampled_block(
        self, vocabularies: Vocabularies, rate: float, seed: int, epoch: int, stretch: "_Stretch"
    ) -> "_Encoded":
        begin, end = stretch.begin, stretch.end
        seeds = np.random.SeedSequence([seed, epoch, begin]).generate_state(2)
        source_texts = Ragged(self.path, "source_text", "u1").texts(begin, end)
        target_texts = Ragged(self.path, "target_text", "u1").texts(begin, end)
        sources = vocabularies.source.encode_sampled(source_texts, rate, int(seeds[0]))
        targets = vocabularies.target.encode_sampled(target_texts, rate, int(seeds[1]))
        for row, index in enumerate(range(begin, end)):
            if self.rules.max_length and max(len(sources[row]), len(targets[row])) > self.rules.max_length:
                sources[row] = self.source(index).tolist()  # the plain segmentation is within the limit
                targets[row] = self.target(index).tolist()
        counts = Report(pairs=end - begin, kept=end - begin)
        return _encoded(sources, targets, vocabularies, counts, (), stretch.group)


def store_name(content: str, models: tuple[bytes, bytes], rules: Rules) -> str:
    """The name of a store in the cache, made from the hash of its pairs, the models of its vocabularies and the rules."""
    return STORE + cache.entry_key(FORMAT, content, models, rules)


def sampled_name(store: str, rate: float, seed: int) -> str:
    """The beginning of the names of the sampled segmentations of a store."""
    return f"{SAMPLED}{cache.entry_key(store, rate, seed)}-"


def open_or_build(
    corpus: Corpus,
    scan: Scan,
    vocabularies: Vocabularies,
    rules: Rules,
    folder: Path,
    *,
    purpose: Literal["train", "validate"] = "train",
    notify: Callable[[str], None] = cache.to_stderr,
) -> Store:
    """The store of this corpus, from the cache in `folder` or built now; an error says what it was for."""
    name = store_name(scan.content, (vocabularies.source.model, vocabularies.target.model), rules)

    def build(path: Path) -> None:
        encode = partial(_encode_block, vocabularies, rules)
        blocks = in_parallel(encode, corpus.blocks())
        report = _write(blocks, vocabularies, rules, len(corpus.groups), path)
        if report.kept == 0:
            raise DataError(f"no pair is left to {purpose} on: {report.summary()}")

    return Store(cache.open_or_write(folder, name, build, notify))


@dataclass(frozen=True)
class _Stretch:
    """Consecutive pairs of a store, all of one group."""

    group: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Encoded:
    """One block of text as a part of a store."""

    arrays: dict[str, Rows]
    report: Report
    group: int


def _encode_block(vocabularies: Vocabularies, rules: Rules, block: PairBlock) -> _Encoded:
    known = vocabularies.source.feature_symbols if block.symbols else ()
    sources = FeatureEncoder(vocabularies.source, known).encode(block.source)
    targets = vocabularies.target.encode(block.target)
    pairs = zip(block.source, block.target, sources, targets, strict=True)
    reasons = [_left_out(*pair, rules) for pair in pairs]
    kept = [row for row, reason in enumerate(reasons) if not reason]
    counts = Report(
        pairs=len(reasons),
        kept=len(kept),
        empty=reasons.count("empty"),
        identical=reasons.count("identical"),
        too_long=reasons.count("too long"),
        target_bytes=sum(len(block.target[row].encode()) + 1 for row in kept),
    )
    texts = (block.source, block.target) if rules.keep_text else ()
    return _encoded(
        [sources[row] for row in kept],
        [targets[row] for row in kept],
        vocabularies,
        counts,
        tuple([side[row] for row in kept] for side in texts),
        block.group,
    )


def _left_out(source: str, target: str, source_ids: list[int], target_ids: list[int], rules: Rules) -> str:
    """Why the pair is left out, or an empty string if it is kept."""
    shortest, longest = sorted((len(source_ids), len(target_ids)))
    if rules.drop_empty and (shortest == 1 or is_empty(source, target)):  # control characters encode to nothing
        return "empty"
    if rules.drop_identical and are_equal(source, target):
        return "identical"
    return "too long" if rules.max_length and longest > rules.max_length else ""


def _encoded(
    sources: list[list[int]],
    targets: list[list[int]],
    vocabularies: Vocabularies,
    counts: Report,
    texts: tuple[list[str], ...],
    group: int,
) -> _Encoded:
    source = Rows.of_ids(sources, _id_type(vocabularies.source.size))
    target = Rows.of_ids(targets, _id_type(vocabularies.target.size))
    text = dict(zip(("source_text", "target_text"), map(Rows.of_texts, texts), strict=False))
    report = replace(
        counts,
        source_tokens=len(source.values),
        target_tokens=len(target.values),
        source_unknown=int(np.count_nonzero(source.values == UNKNOWN)),
        target_unknown=int(np.count_nonzero(target.values == UNKNOWN)),
    )
    return _Encoded({"source": source, "target": target, **text}, report, group)


def _write(
    blocks: Iterable[_Encoded],
    vocabularies: Vocabularies,
    rules: Rules,
    groups: int,
    path: Path,
) -> Report:
    """Write the blocks in order as one store; the sum of their reports."""
    report, kept = Report(), [0] * groups
    names = ["source", "target"] + ["source_text", "target_text"] * rules.keep_text
    with ExitStack() as files:
        writers = {name: files.enter_context(RaggedWriter(path, name)) for name in names}
        for block in blocks:
            for name, writer in writers.items():
                writer.append(block.arrays[name])
            report += block.report
            kept[block.group] += block.report.kept
    meta = {
        "report": asdict(report),
        "rules": asdict(rules),
        "groups": kept,
        "source_type": _id_type(vocabularies.source.size),
        "target_type": _id_type(vocabularies.target.size),
    }
    write_durably(path / _META, json.dumps(meta, indent=1).encode())
    return report


def _id_type(vocabulary_size: int) -> str:
    return "<u2" if vocabulary_size <= 1 << 16 else "<u4"


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of `work` in order, computed on all cores a few items ahead: sentencepiece releases Python's lock."""
    workers = available_cores()
    waiting: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
