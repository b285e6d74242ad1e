"""The examination of a corpus: reads every file once on all cores, applies every analysis, and makes the report.

Validation and test data come first and are kept in memory: thresholds come from them, and the training data is searched for
their pairs. Knows which analyses there are; each knows nothing of the others.
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from transduce.config.columns import Columns
from transduce.data import (
    Corpus,
    Group,
    describe_columns,
    groups_from_setting,
    infer_columns,
    is_manifest,
    without_pipes,
)
from transduce.diagnosis.alphabet import Alphabet
from transduce.diagnosis.analysis import Analysis, Block, Context, Place
from transduce.diagnosis.characters import character_rules
from transduce.diagnosis.drift import DriftAnalysis
from transduce.diagnosis.duplicates import Duplicates
from transduce.diagnosis.findings import Finding, Report, Role, ranked
from transduce.diagnosis.language import LanguageAnalysis
from transduce.diagnosis.leaks import HeldOut, Leaks
from transduce.diagnosis.lookup import Lookup
from transduce.diagnosis.markup import MARKUP_RULES
from transduce.diagnosis.near_duplicates import NearDuplicateAnalysis
from transduce.diagnosis.overview import Overview
from transduce.diagnosis.pairs import PAIR_RULES
from transduce.diagnosis.reading import Portion, PortionParser, PortionReader
from transduce.diagnosis.removal import SLOW, STRUCTURE, Removal
from transduce.diagnosis.rules import Rows, RuleAnalysis
from transduce.diagnosis.script import ScriptAnalysis
from transduce.diagnosis.structure import Structure
from transduce.diagnosis.symbol_tasks import ABOUT_SENTENCES, without_sentences
from transduce.diagnosis.thresholds import thresholds
from transduce.diagnosis.workers import StartMethod, in_order
from transduce.errors import DataError, SettingError
from transduce.training.request import RequestedSettings

T = TypeVar("T")

PORTIONS_FOR_THRESHOLDS = 2  # of the training data
HELD_OUT: tuple[Role, ...] = ("valid", "test")

Corpora = Mapping[Role, Corpus]


@dataclass(frozen=True)
class Options:
    """How to examine a corpus."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    workers: int = 0  # processes; 0: one for each core
    start: StartMethod = "auto"
    fast: bool = False  # without near-duplicates and the identification of languages
    only: frozenset[str] = frozenset()  # names of analyses, to time them; without it, all
    removal: Removal = Removal()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        for rule in sorted(self.removal.only & SLOW) if self.fast else ():
            raise SettingError(f"--only {rule}: --fast does not look for these pairs: leave out --fast")


@dataclass(frozen=True)
class Examined:
    """The report, and by rule the numbers of the training pairs to remove."""

    report: Report
    removed: Mapping[str, Rows]


@contextmanager
def open_corpora(requested: RequestedSettings, test: tuple[Group, ...]) -> Iterator[Corpora]:
    """The files as `train` would read them; pipes are copied to files first."""
    data = requested.config.data
    if not data.train:
        raise SettingError("no training data: give --train SOURCE TARGET or --train FILE.tsv")
    given: dict[Role, tuple[Group, ...]] = {
        "train": groups_from_setting(data.train),
        "valid": groups_from_setting(data.valid),
        "test": test,
    }
    with tempfile.TemporaryDirectory() as scratch:
        plain = without_pipes(tuple(chain(*given.values())), Path(scratch))
        for group in filter(_names_recordings, plain):
            raise DataError(
                f"{group[0]}: names recordings, and only texts are examined: `transduce train` checks recordings"
            )
        columns = data.layout or _inferred_columns(plain, data.languages)
        following = iter(plain)
        found = {role: tuple(islice(following, len(groups))) for role, groups in given.items()}
        yield {
            role: Corpus(groups, data.languages, columns, data.skip_blank_lines)
            for role, groups in found.items()
            if groups
        }


def header_lines(corpora: Corpora) -> list[str]:
    """One line for each table with a header line or with more than two columns, as `train` prints it."""
    return _unless_undecodable(lambda: [line for corpus in corpora.values() for line in describe_columns(corpus)], [])


def _inferred_columns(groups: Sequence[Group], languages: tuple[str, ...]) -> Columns | None:
    """The columns as `train` infers them; the usual ones if a table is not UTF-8."""
    return _unless_undecodable(lambda: infer_columns(groups, languages), None)


def _names_recordings(group: Group) -> bool:
    return _unless_undecodable(lambda: is_manifest(group), False)


def _unless_undecodable(read: Callable[[], T], otherwise: T) -> T:
    """What `read` returns; a table that is not UTF-8 is a finding of the examination and no error here."""
    try:
        return read()
    except DataError as error:
        if "is not UTF-8" not in str(error):
            raise
        return otherwise


def examine(corpora: Corpora, requested: RequestedSettings, options: Options | None = None) -> Examined:
    """Everything that can be said about these corpora."""
    begun, cpu_begun = time.perf_counter(), _cpu_seconds()
    options = options or Options()
    held_out = {role: _HeldOutCorpus(role, corpora[role]) for role in HELD_OUT if role in corpora}
    reader = PortionReader("train", corpora["train"])
    portions = iter(reader)
    first = list(islice(portions, PORTIONS_FOR_THRESHOLDS))
    context = _context(corpora["train"], first, held_out, requested, options)
    passes = [
        _Pass(one.role, one.corpus, _usual(replace(context, role=one.role), one.corpus, options.fast))
        for one in held_out.values()
    ]
    for one, reading in zip(held_out.values(), passes, strict=True):
        reading.run(one.portions, options)
        reading.structure.surplus = one.reader.surplus
    blocks = {role: one.blocks for role, one in held_out.items()}
    training = _Pass(
        "train", corpora["train"], _of_training(context, corpora["train"], blocks, requested, options.fast)
    )
    training.run(chain(first, portions), options)
    training.structure.surplus = reader.surplus
    examined = _conclude([*passes, training], context, requested, corpora, options)
    seconds = time.perf_counter() - begun
    report = replace(
        examined.report,
        seconds=seconds,
        reading_seconds=training.ended - begun,
        cpu_seconds=training.cpu_ended - cpu_begun,
    )
    return replace(examined, report=report)


def _cpu_seconds() -> float:
    """CPU time of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class _HeldOutCorpus:
    """Validation or test data in memory."""

    def __init__(self, role: Role, corpus: Corpus) -> None:
        self.role: Role = role
        self.corpus = corpus
        self.reader = PortionReader(role, corpus)
        self.portions = list(self.reader)
        parse = PortionParser(role, corpus)
        self.blocks = [parse(portion).block for portion in self.portions]


def _context(
    train: Corpus,
    first: Sequence[Portion],
    held_out: Mapping[Role, _HeldOutCorpus],
    requested: RequestedSettings,
    options: Options,
) -> Context:
    parse = PortionParser("train", train)
    valid = held_out["valid"].blocks if "valid" in held_out else []
    limits = thresholds(valid, (parse(portion).block for portion in first), options.thresholds)
    data = requested.config.data
    languages = () if data.tags else data.languages  # with tags, there are several target languages
    return Context("train", languages, limits)


def _usual(context: Context, corpus: Corpus, fast: bool) -> list[Analysis]:
    """The analyses of every corpus."""
    return [
        Overview(context, corpus.groups),
        RuleAnalysis("characters of texts", character_rules(), context),
        RuleAnalysis("markup", MARKUP_RULES, context),
        RuleAnalysis("lengths, copies and numbers", PAIR_RULES, context),
        ScriptAnalysis(context),
        DriftAnalysis(context, Lookup(context.role, corpus)),
        *([] if fast else [LanguageAnalysis(context)]),
    ]


def _of_training(
    context: Context, corpus: Corpus, held_out: Mapping[Role, Sequence[Block]], requested: RequestedSettings, fast: bool
) -> list[Analysis]:
    """The analyses of the training data."""
    sought = [HeldOut(role, blocks) for role, blocks in held_out.items() if sum(map(len, blocks))]
    leaks = [Leaks(context, sought)] if sought else []
    alphabet = [Alphabet(held_out, requested.config.data.unknown)] if sought else []
    lookup = Lookup("train", corpus)
    near: list[Analysis] = [] if fast else [NearDuplicateAnalysis(context, lookup)]
    return [*_usual(context, corpus, fast), Duplicates(context, lookup), *leaks, *alphabet, *near]


@dataclass(frozen=True)
class _Observed:
    """What the analyses have to say about one portion."""

    place: Place
    malformed: tuple[Any, ...]
    observations: list[Any]
    seconds: list[float]


@dataclass(frozen=True)
class _Worker:
    """Turns a portion into observations; every worker process has a copy."""

    parse: PortionParser
    analyses: Sequence[Analysis]

    def __call__(self, portion: Portion) -> _Observed:
        parsed = self.parse(portion)
        observations, seconds = [], []
        for analysis in self.analyses:
            begun = time.process_time()
            observations.append(analysis.observe(parsed.block))
            seconds.append(time.process_time() - begun)
        return _Observed(parsed.block.place, parsed.malformed, observations, seconds)


class _Pass:
    """One reading of one corpus with its analyses."""

    def __init__(self, role: Role, corpus: Corpus, analyses: list[Analysis]) -> None:
        self.role: Role = role
        self.corpus, self.analyses = corpus, analyses
        self.structure = Structure(role, corpus.groups)
        self.seconds: dict[str, float] = defaultdict(float)
        self.pairs = 0
        self.ended = self.cpu_ended = 0.0

    def run(self, portions: Iterable[Portion], options: Options) -> None:
        chosen = [one for one in self.analyses if not options.only or one.name in options.only]
        work = _Worker(PortionParser(self.role, self.corpus), chosen)
        for observed in in_order(work, portions, options.workers, options.start):
            place = replace(observed.place, first_pair=self.pairs)
            self.pairs += len(place)
            self.structure.add(place, observed.malformed)
            for analysis, observation, seconds in zip(chosen, observed.observations, observed.seconds, strict=True):
                analysis.add(place, observation)
                self.seconds[analysis.name] += seconds
        self.ended, self.cpu_ended = time.perf_counter(), _cpu_seconds()

    @property
    def overview(self) -> Overview:
        return next(one for one in self.analyses if isinstance(one, Overview))

    def findings(self) -> list[Finding]:
        return [*self.structure.finish(self.pairs), *chain(*(analysis.finish() for analysis in self.analyses))]


def _conclude(
    passes: Sequence[_Pass], context: Context, requested: RequestedSettings, corpora: Corpora, options: Options
) -> Examined:
    from transduce.diagnosis.preview import preview  # imports torch, which must not be there when workers are forked

    training = passes[-1]
    if not training.pairs:
        raise training.structure.no_pairs()
    findings = [finding for one in passes for finding in one.findings()]
    concerned = dict(chain.from_iterable(one.concerned().items() for one in training.analyses))
    ahead = preview(training.overview, corpora["train"].columns, requested)
    findings += _not_checked(languages=not options.fast and ahead.task != "symbols")
    if ahead.task == "symbols":
        findings = without_sentences(findings)
        concerned = {rule: rows for rule, rows in concerned.items() if rule not in ABOUT_SENTENCES}
    report = Report(
        corpora=tuple(count for one in passes for count in one.overview.corpora()),
        pairs=sum(one.pairs for one in passes),
        seconds=0.0,
        findings=ranked([options.removal.advised(one, {*concerned, *STRUCTURE}) for one in findings]),
        statistics=training.overview.statistics(),
        thresholds=dict(context.thresholds),
        left_out=ahead.left_out,
        settings=ahead.settings,
        reasons=ahead.reasons,
        minutes=requested.config.train.minutes,
        rates=dict(training.seconds),
    )
    return Examined(report, {rule: rows for rule, rows in concerned.items() if options.removal.removes(rule)})


def _not_checked(languages: bool) -> list[Finding]:
    """One note if packages are missing that rules need."""
    needed = {"ftfy": "mojibake", **({"lingua": "swapped files and texts in a third language"} if languages else {})}
    missing = {package: sought for package, sought in needed.items() if not find_spec(package)}
    if not missing:
        return []
    sought = ", and ".join(f"{what} (needs the package {package})" for package, what in missing.items())
    return [
        Finding(
            rule="not_checked",
            severity="note",
            count=0,
            share=0.0,
            explanation=f"Not looked for: {sought}.",
            advice="Install what is missing: pip install 'transduce[doctor]'.",
        )
    ]
