"""What an examination of a corpus returns: findings with examples, statistics, and the report that holds them.

These are plain values without behaviour beyond ordering and JSON. This module knows no files and no rules.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal

Severity = Literal["serious", "notable", "note"]
Role = Literal["train", "valid", "test"]

SEVERITIES: tuple[Severity, ...] = ("serious", "notable", "note")  # the worst first
MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """A pair that shows a finding. Texts are decoded with U+FFFD for bytes that are not UTF-8, and long ones are cut."""

    file: str
    line: int  # counted from 1; 0 if the finding is not about one line
    source: str = ""
    target: str = ""
    detail: str = ""  # what to look at, such as the character or the number that is missing


@dataclass(frozen=True)
class Finding:
    """What one rule has found in one corpus."""

    rule: str  # an identifier, such as "mojibake"
    severity: Severity
    count: int  # pairs concerned; 0 if the finding is about the corpus as a whole
    share: float  # of the pairs that were looked at
    explanation: str  # one sentence: what is wrong and what it does to a model
    advice: str  # one sentence: what to do
    examples: tuple[Example, ...] = ()  # at most MOST_EXAMPLES
    corpus: Role = "train"


@dataclass(frozen=True)
class CorpusCount:
    """The size of one group of files."""

    role: Role
    files: tuple[str, ...]
    pairs: int
    source_characters: int  # bytes that are not UTF-8 count as one character each
    target_characters: int


@dataclass(frozen=True)
class Histogram:
    """Counts between edges: `counts[n]` belongs to `edges[n] <= value < edges[n + 1]`."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


NOTHING = Histogram((), ())


@dataclass(frozen=True)
class Statistics:
    """Distributions over the training pairs, for pictures. Lengths are in characters."""

    source_lengths: Histogram = NOTHING
    target_lengths: Histogram = NOTHING
    length_ratios: Histogram = NOTHING  # target length / source length
    scatter: tuple[tuple[int, int], ...] = ()  # (source length, target length) of a sample of the pairs


@dataclass(frozen=True)
class Threshold:
    """The limit of a rule, and where it comes from."""

    value: float
    origin: Literal["validation data", "built-in", "given"]


@dataclass(frozen=True)
class RankedPair:
    """A pair with the cross-entropy that models give it, in nats per token."""

    file: str
    line: int
    source: str
    target: str
    score: float  # the higher, the worse
    forward: float
    reverse: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything that an examination has found."""

    corpora: tuple[CorpusCount, ...]
    pairs: int  # of all corpora
    seconds: float  # in all
    findings: tuple[Finding, ...]  # the most serious first
    statistics: Statistics = field(default_factory=Statistics)
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)  # training pairs that `train` would leave out, by reason
    settings: Mapping[str, Any] = field(default_factory=dict)  # the settings that `train` would choose, by name
    reasons: tuple[str, ...] = ()  # why it would choose them
    minutes: float = 0.0  # the budget that these settings are chosen for; 0: none in minutes
    ranking: tuple[RankedPair, ...] = ()  # the worst pairs by the models' cross-entropy, the worst first
    reading_seconds: float = 0.0  # until every pair was read and looked at
    cpu_seconds: float = 0.0  # of all processes, until then
    rates: Mapping[str, float] = field(default_factory=dict)  # seconds of CPU time for the training data, by analysis

    def count(self, severity: Severity) -> int:
        """How many findings have this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The report as values that `json.dumps` takes."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """The findings in the order in which people should read them: by severity, then by count."""
    return tuple(sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), -one.count, one.corpus, one.rule)))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no infinity
