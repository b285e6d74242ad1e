"""Rules about single pairs, and the analysis that applies a list of them to a corpus.

A rule names the rows of a block that break it. It looks at whole blocks of bytes first and at single lines only where a block is
suspicious, because most blocks are clean. The rules themselves are in `transduce/diagnosis/characters.py`, `transduce/diagnosis/markup.py`
and `transduce/diagnosis/pairs.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Severity

Rows = NDArray[np.int64]
NEVER = 2.0  # a share that is never reached

NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(frozen=True)
class EitherSide:
    """Finds the pairs of which at least one side breaks a rule about single texts."""

    find: Callable[[Side], Rows]

    def __call__(self, block: Block, context: Context) -> Rows:
        return union(*map(self.find, block.sides))

    def side_of(self, block: Block, row: int, context: Context) -> int:
        """0 if the source breaks the rule, 1 if only the target does."""
        return 0 if len(self.find(Side(block.source.lines[row] + b"\n"))) else 1


def _source(block: Block, row: int, context: Context) -> int:
    return 0


@dataclass(frozen=True)
class Rule:
    """A rule about single pairs. `find` and `detail` must be functions of a module, so that they can be sent to workers."""

    name: str
    find: EitherSide | Callable[[Block, Context], Rows]  # the rows that break the rule, in order
    detail: Callable[[Block, int, Context], str]  # what to look at in a row
    explanation: str
    advice: str
    serious: float = NEVER  # from this share of the pairs on
    notable: float = NEVER
    removes: bool = True  # whether `--write` leaves these pairs out unless it is told otherwise
    sentences: bool = False  # whether the rule makes sense only for sentences, not for words and symbols
    side: Callable[[Block, int, Context], int] = _source  # the side to look at first, where `find` does not know it

    def rows(self, block: Block, context: Context) -> Rows:
        """The rows that break the rule; the sides of a pair are compared only if both have text."""
        found = self.find(block, context)
        return found if isinstance(self.find, EitherSide) else block.without_blank(found)

    def example(self, block: Block, row: int, context: Context) -> Example:
        side = self.find.side_of if isinstance(self.find, EitherSide) else self.side
        return block.example(row, self.detail(block, row, context), side(block, row, context))

    def severity(self, share: float) -> Severity:
        return "serious" if share >= self.serious else "notable" if share >= self.notable else "note"


@dataclass(frozen=True)
class Observed:
    """What one rule has found in one block."""

    rows: Rows
    examples: list[tuple[int, Example]]  # with the random numbers by which examples are chosen


class RuleAnalysis:
    """Applies rules to every pair, counts, and keeps a few random examples of each."""

    def __init__(self, name: str, rules: Sequence[Rule], context: Context) -> None:
        self.name, self.rules, self.context = name, tuple(rules), context
        self.pairs = 0
        self.count: Counter[str] = Counter()
        self._examples: dict[str, list[tuple[int, Example]]] = {rule.name: [] for rule in rules}
        self._rows: dict[str, list[Rows]] = {rule.name: [] for rule in rules}

    def observe(self, block: Block) -> dict[str, Observed]:
        found = {rule.name: (rule, rule.rows(block, self.context)) for rule in self.rules}
        return {name: self._observed(block, *hit) for name, hit in found.items() if len(hit[1])}

    def _observed(self, block: Block, rule: Rule, rows: Rows) -> Observed:
        chosen = sorted((_random(block.place, int(row)), int(row)) for row in rows)[:MOST_EXAMPLES]
        return Observed(rows, [(at, rule.example(block, row, self.context)) for at, row in chosen])

    def add(self, place: Place, observed: dict[str, Observed]) -> None:
        self.pairs += len(place)
        for name, found in observed.items():
            self.count[name] += len(found.rows)
            kept = [*self._examples[name], *found.examples]
            self._examples[name] = sorted(kept, key=lambda pair: pair[0])[:MOST_EXAMPLES]
            self._rows[name].append(found.rows + place.first_pair)

    def finish(self) -> list[Finding]:
        return [self._finding(rule) for rule in self.rules if self.count[rule.name]]

    def _finding(self, rule: Rule) -> Finding:
        count = self.count[rule.name]
        share = count / self.pairs
        examples = sorted((example for _, example in self._examples[rule.name]), key=lambda one: (one.file, one.line))
        return Finding(
            rule=rule.name,
            severity=rule.severity(share),
            count=count,
            share=share,
            explanation=rule.explanation,
            advice=rule.advice,
            examples=tuple(examples),
            corpus=self.context.role,
        )

    def concerned(self) -> Mapping[str, Rows]:
        return {name: np.concatenate(rows) for name, rows in self._rows.items() if rows}


def _random(place: Place, row: int) -> int:
    """A number that is random, but the same whenever the corpus is read: it decides which examples are shown."""
    return crc32(b"%d:%d" % (place.group, place.lines[row]))


def union(*rows: Rows) -> Rows:
    """The rows of any of these, each once and in order."""
    some = [one for one in rows if len(one)]
    return np.unique(np.concatenate(some)) if len(some) > 1 else some[0] if some else NO_ROWS
