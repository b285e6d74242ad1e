"""Validation and test pairs in the training data: the same pairs, and training pairs that share most n-grams with one.

Validation and test data are kept in memory. Knows hashes and n-grams, and no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Role
from transduce.diagnosis.ngrams import NGrams, ngrams
from transduce.diagnosis.rules import Rows

# Shares of the held-out pairs; fewer are normal for short sentences, and for similar pairs in texts of one kind.
SERIOUS = {"same": 0.01, "similar": 0.05}
NOTABLE = {"same": 0.01, "similar": 0.01}
FEWEST_NGRAMS = 5  # of a held-out sentence: shorter ones can be alike by chance
_BITS = 20  # of the filter that most n-grams do not pass

_NAMES = {"valid": "validation", "test": "test"}
KINDS = ("same", "similar")


def rule_of(kind: str, role: Role) -> str:
    """The name of the rule about training pairs that are the same as a held-out pair, or similar to one."""
    return f"{'' if kind == 'same' else 'near_'}{role}_pairs_in_training"


@dataclass(frozen=True)
class _Filter:
    """A table that quickly rules out most hashes that are not wanted."""

    table: NDArray[np.bool_]

    @staticmethod
    def of(hashes: NDArray[np.uint64]) -> "_Filter":
        table = np.zeros(1 << _BITS, bool)
        table[hashes >> np.uint64(64 - _BITS)] = True
        return _Filter(table)

    def maybe(self, hashes: NDArray[np.uint64]) -> Rows:
        return np.flatnonzero(self.table[hashes >> np.uint64(64 - _BITS)])


class HeldOut:
    """The pairs that must not be in the training data, ready to be searched for."""

    def __init__(self, role: Role, blocks: Sequence[Block]) -> None:
        self.role: Role = role
        self.target = [line for block in blocks for line in block.target.lines]
        self.pairs = len(self.target)
        hashes = np.concatenate([np.empty(0, np.uint64), *(block.hashes for block in blocks)])
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        self._filter = _Filter.of(hashes)
        self._index_ngrams(blocks)

    def _index_ngrams(self, blocks: Sequence[Block]) -> None:
        """The n-grams of the sources with the number of their sentence; those that several sentences have are left out."""
        first, some = 0, []
        for block in blocks:
            found = ngrams(block.source)
            some.append(NGrams(found.hashes, found.rows + first))
            first += len(block)
        hashes = np.concatenate([np.empty(0, np.uint64), *(one.hashes for one in some)])
        owners = np.concatenate([np.empty(0, np.int64), *(one.rows for one in some)])
        self.ngram_counts = np.bincount(owners, minlength=self.pairs)
        order = np.argsort(hashes, kind="stable")
        self._ngrams, self._owners = hashes[order], owners[order]
        self._ngram_filter = _Filter.of(hashes)

    def same(self, hashes: NDArray[np.uint64]) -> tuple[Rows, Rows]:
        """The rows whose pairs are held out, and the number of the held-out pair of each."""
        rows = self._filter.maybe(hashes)
        at = np.searchsorted(self._sorted, hashes[rows])
        at = np.minimum(at, self.pairs - 1)
        exact = self._sorted[at] == hashes[rows]
        return rows[exact], self._order[at[exact]]

    def shown(self, number: int) -> str:
        """The target of a held-out pair, for people to compare."""
        return f"{_NAMES[self.role]} line {number + 1:,}: {self.target[number].decode(errors='replace')[:200]}"

    def similar(self, block: Block, found: NGrams, share: float) -> list[tuple[int, int]]:
        """(row, number) of pairs that share this part of the n-grams of a held-out pair on both sides."""
        maybe = self._ngram_filter.maybe(found.hashes)
        begin = np.searchsorted(self._ngrams, found.hashes[maybe])
        known = begin < len(self._ngrams)
        maybe, begin = maybe[known], begin[known]
        hits = self._ngrams[begin] == found.hashes[maybe]
        keys = found.rows[maybe[hits]] * self.pairs + self._owners[begin[hits]]
        pairs, counts = np.unique(keys, return_counts=True)
        owners = pairs % self.pairs
        enough = (counts >= share * self.ngram_counts[owners]) & (self.ngram_counts[owners] >= FEWEST_NGRAMS)
        candidates = [(int(key // self.pairs), int(key % self.pairs)) for key in pairs[enough]]
        return [
            one for one in candidates if self._targets_agree(block.target.lines[one[0]], self.target[one[1]], share)
        ]

    @staticmethod
    def _targets_agree(training: bytes, held_out: bytes, share: float) -> bool:
        here, there = (set(ngrams(Side(line + b"\n")).hashes.tolist()) for line in (training, held_out))
        return len(here & there) >= max(1.0, share * len(there))


@dataclass(frozen=True)
class Observed:
    """What one block of training data has of one held-out corpus."""

    same: tuple[Rows, Rows]  # rows and numbers of held-out pairs
    similar: list[tuple[int, int]]
    examples: dict[str, list[Example]]


class Leaks:
    """Searches the training data for the pairs of the held-out corpora."""

    name = "held-out pairs"

    def __init__(self, context: Context, held_out: Sequence[HeldOut]) -> None:
        self.context, self.held_out = context, held_out
        self._collected = [_Collected(one) for one in held_out]

    def observe(self, block: Block) -> list[Observed]:
        found = ngrams(block.source)
        return [self._observe(block, found, one) for one in self.held_out]

    def _observe(self, block: Block, found: NGrams, held_out: HeldOut) -> Observed:
        rows, numbers = held_out.same(block.hashes)
        full = ~np.isin(rows, block.blank)
        rows, numbers = rows[full], numbers[full]
        exact = set(rows.tolist())
        near = held_out.similar(block, found, self.context.threshold("shared_ngrams"))
        near = [one for one in near if one[0] not in exact]
        examples = {
            "same": [block.example(int(row)) for row in rows[:MOST_EXAMPLES]],
            "similar": [block.example(row, held_out.shown(number)) for row, number in near[:MOST_EXAMPLES]],
        }
        return Observed((rows, numbers), near, examples)

    def add(self, place: Place, observed: list[Observed]) -> None:
        for one, some in zip(self._collected, observed, strict=True):
            one.add(place, some)

    def finish(self) -> list[Finding]:
        return [finding for one in self._collected for finding in one.finish()]

    def concerned(self) -> Mapping[str, Rows]:
        return {rule: rows for one in self._collected for rule, rows in one.concerned().items()}


class _Collected:
    """What the training data has of one held-out corpus."""

    def __init__(self, held_out: HeldOut) -> None:
        self.role, self.pairs = held_out.role, held_out.pairs
        self._rows: dict[str, list[Rows]] = {"same": [], "similar": []}
        self._found: dict[str, set[int]] = {"same": set(), "similar": set()}
        self._examples: dict[str, list[Example]] = {"same": [], "similar": []}

    def add(self, place: Place, observed: Observed) -> None:
        near = np.array(sorted({row for row, _ in observed.similar}), np.int64)
        for kind, rows, numbers in (
            ("same", observed.same[0], observed.same[1].tolist()),
            ("similar", near, [number for _, number in observed.similar]),
        ):
            self._rows[kind].append(rows + place.first_pair)
            self._found[kind].update(numbers)
            self._examples[kind] = [*self._examples[kind], *observed.examples[kind]][:MOST_EXAMPLES]

    def finish(self) -> list[Finding]:
        self._found["similar"] -= self._found["same"]
        return [self._finding(kind) for kind in KINDS if self._found[kind]]

    def _finding(self, kind: str) -> Finding:
        count, name = len(self._found[kind]), _NAMES[self.role]
        share = count / self.pairs
        what = "are also training pairs" if kind == "same" else "are almost the same as a training pair"
        return Finding(
            rule=rule_of(kind, self.role),
            severity="serious" if share > SERIOUS[kind] else "notable" if share > NOTABLE[kind] else "note",
            count=count,
            share=share,
            explanation=f"Pairs of the {name} data that {what}, so that scores on them are too high.",
            advice=f"Leave them out of the training data, or use other {name} data.",
            examples=tuple(self._examples[kind]),
            corpus=self.role,
        )

    def concerned(self) -> Mapping[str, Rows]:
        return {
            rule_of(kind, self.role): np.concatenate(rows) for kind, rows in self._rows.items() if sum(map(len, rows))
        }
