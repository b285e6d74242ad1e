"""Sides that drift apart: after a line is lost or added on one side, every later pair is wrong.

Keeps ten bytes for each pair in temporary files. The search for the shifts is in `transduce/diagnosis/offsets.py`; this module
says where they are in the files.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding
from transduce.diagnosis.lookup import Lookup
from transduce.diagnosis.offsets import FEATURES, NOWHERE, Codes, Stretch, codes_of, find_shifts

RULE = "drift"
UNMATCHED = "unmatched_sides"


@dataclass(frozen=True)
class _Drift:
    """A stretch of pairs by their numbers within the corpus; `is_everything` if no line of its files matches."""

    first: int
    last: int
    offset: int
    is_everything: bool

    def __len__(self) -> int:
        return self.last - self.first + 1


class _Group:
    """The codes of one group of files, in temporary files."""

    def __init__(self, place: Place) -> None:
        self.first_pair, self.pairs = place.first_pair, 0
        self._codes: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115

    def add(self, codes: tuple[Codes, Codes]) -> None:
        self.pairs += len(codes[0])
        for file, side in zip(self._codes, codes, strict=True):
            file.write(side.tobytes())

    def drifts(self) -> list[_Drift]:
        """The shifted stretches of this group; the temporary files are closed."""
        source, target = (_mapped(file) for file in self._codes)
        found = [self._numbered(stretch) for stretch in find_shifts(source, target)]
        for file in self._codes:
            file.close()
        return found

    def _numbered(self, stretch: Stretch) -> _Drift:
        first, last = (self.first_pair + pair for pair in (stretch.first, stretch.last))
        return _Drift(first, last, stretch.offset, stretch.offset == NOWHERE and len(stretch) == self.pairs)


def _mapped(file: IO[bytes]) -> Codes:
    file.flush()
    return np.memmap(file, np.uint8, "r").reshape(-1, FEATURES) if file.tell() else np.empty((0, FEATURES), np.uint8)


class DriftAnalysis:
    """Finds stretches of lines in which each source belongs to another line's target."""

    name = RULE

    def __init__(self, context: Context, lookup: Lookup) -> None:
        self.role, self.lookup = context.role, lookup
        self._groups: dict[int, _Group] = {}
        self._drifts: list[_Drift] = []

    def observe(self, block: Block) -> tuple[Codes, Codes]:
        source, target = (codes_of(side.bytes, side.ends) for side in block.sides)
        return source, target

    def add(self, place: Place, observed: tuple[Codes, Codes]) -> None:
        if not len(place):
            return
        if place.group not in self._groups:
            self._groups[place.group] = _Group(place)
        self._groups[place.group].add(observed)

    def finish(self) -> list[Finding]:
        self._drifts = [drift for group in self._groups.values() for drift in group.drifts()]
        return [*self._shifted(), *self._unmatched()]

    def concerned(self) -> Mapping[str, NDArray[np.int64]]:
        """All pairs of the shifted stretches. A corpus that matches nowhere is left whole, for the user to judge."""
        numbers = [np.arange(drift.first, drift.last + 1) for drift in self._drifts if not drift.is_everything]
        return {RULE: np.concatenate(numbers)} if numbers else {}

    def _shifted(self) -> Iterator[Finding]:
        drifts = [drift for drift in self._drifts if not drift.is_everything]
        if not drifts:
            return
        count = sum(map(len, drifts))
        known = any(drift.offset != NOWHERE for drift in drifts)
        bounds = self._bounds(drifts)
        yield Finding(
            RULE,
            "serious" if known else "notable",
            count,
            count / sum(group.pairs for group in self._groups.values()),
            f"The two sides are out of step {_where(drifts, bounds)}, so a model would learn wrong translations from these pairs.",
            _advice(drifts[0], bounds),
            _examples(drifts, bounds),
            self.role,
        )

    def _unmatched(self) -> Iterator[Finding]:
        drifts = [drift for drift in self._drifts if drift.is_everything]
        if not drifts:
            return
        count = sum(map(len, drifts))
        yield Finding(
            UNMATCHED,
            "notable",
            count,
            count / sum(group.pairs for group in self._groups.values()),
            "Lengths, digits and punctuation of the two sides are unrelated, as if one side were in another order.",
            "Check that the two files belong together and have the same order.",
            _examples(drifts, self._bounds(drifts)),
            self.role,
        )

    def _bounds(self, drifts: Sequence[_Drift]) -> dict[int, Example]:
        """The first and last pairs of the stretches that are shown, by number."""
        return self.lookup.pairs(pair for drift in drifts[:MOST_EXAMPLES] for pair in (drift.first, drift.last))


def _where(drifts: Sequence[_Drift], bounds: Mapping[int, Example]) -> str:
    begin = f"from line {bounds[drifts[0].first].line:,}"
    if len(drifts) > 1:
        return f"in {len(drifts)} stretches of lines, the first {begin} on"
    return f"{begin} to line {bounds[drifts[0].last].line:,}"


def _advice(drift: _Drift, bounds: Mapping[int, Example]) -> str:
    """How to mend the first stretch; where it begins is known to within a few lines."""
    if drift.offset == NOWHERE:
        return "Look for lines there that are missing on one side or in another order."
    longer, shorter = ("target", "source") if drift.offset > 0 else ("source", "target")
    count = abs(drift.offset)
    lines, them = (f"{count:,} lines", "them") if count > 1 else ("a line", "it")
    empty = f"{count:,} empty lines" if count > 1 else "an empty line"
    return (
        f"Near line {bounds[drift.first].line:,}, the {longer} has {lines} that the {shorter} does not have: delete {them}, "
        f"or insert {empty} in the {shorter} there."
    )


def _examples(drifts: Sequence[_Drift], bounds: Mapping[int, Example]) -> tuple[Example, ...]:
    """The first pair of each stretch."""
    return tuple(replace(bounds[drift.first], detail=_detail(drift, bounds)) for drift in drifts[:MOST_EXAMPLES])


def _detail(drift: _Drift, bounds: Mapping[int, Example]) -> str:
    stretch = f"lines {bounds[drift.first].line:,} to {bounds[drift.last].line:,}"
    if drift.offset == NOWHERE:
        return f"{stretch}: the sources match no targets nearby"
    lines = f"{abs(drift.offset):,} line{'s' * (abs(drift.offset) > 1)}"
    return f"{stretch}: each source matches the target {lines} {'later' if drift.offset > 0 else 'earlier'}"
