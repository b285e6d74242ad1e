"""Sides that drift apart: after a line is lost or added on one side, every later pair is wrong.

Keeps ten bytes for each pair in temporary files. The search for the shifts is in `transduce/doctor/offsets.py`; this module
says where they are in the files.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO

import numpy as np
from numpy.typing import NDArray

from transduce.data.corpus import READ_ERRORS, open_bytes
from transduce.doctor.analysis import Block, Context, Place, shown
from transduce.doctor.findings import MOST_EXAMPLES, Example, Finding
from transduce.doctor.offsets import FEATURES, NOWHERE, Codes, Stretch, codes_of, find_shifts

RULE = "drift"
UNMATCHED = "unmatched-sides"


@dataclass(frozen=True)
class _Drift:
    """A stretch and the group of files that it is in."""

    group: "_Group"
    stretch: Stretch

    @property
    def pairs(self) -> int:
        return len(self.stretch)

    @property
    def is_everything(self) -> bool:
        return self.stretch.offset == NOWHERE and self.pairs == self.group.pairs


class _Group:
    """The codes of one group of files, in temporary files, and the numbers of its lines."""

    def __init__(self, place: Place) -> None:
        self.files, self.first_pair, self.pairs = place.files, place.first_pair, 0
        self.lines: list[tuple[int, Sequence[int]]] = []  # first pair of each block within the group, its line numbers
        self._codes: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115

    def add(self, lines: Sequence[int], codes: tuple[Codes, Codes]) -> None:
        self.lines.append((self.pairs, lines))
        self.pairs += len(lines)
        for file, side in zip(self._codes, codes, strict=True):
            file.write(side.tobytes())

    def drifts(self) -> list[_Drift]:
        """The shifted stretches of this group; the temporary files are closed."""
        source, target = (_mapped(file) for file in self._codes)
        found = [_Drift(self, stretch) for stretch in find_shifts(source, target)]
        for file in self._codes:
            file.close()
        return found

    def line_of(self, pair: int) -> int:
        first, lines = next((first, lines) for first, lines in reversed(self.lines) if first <= pair)
        return lines[pair - first]


def _mapped(file: IO[bytes]) -> Codes:
    file.flush()
    return np.memmap(file, np.uint8, "r").reshape(-1, FEATURES) if file.tell() else np.empty((0, FEATURES), np.uint8)


class DriftAnalysis:
    """Finds stretches of lines in which each source belongs to another line's target."""

    name = RULE

    def __init__(self, context: Context) -> None:
        self.role = context.role
        self._groups: dict[int, _Group] = {}
        self._drifts: list[_Drift] = []

    def observe(self, block: Block) -> tuple[Codes, Codes]:
        source, target = (codes_of(side.bytes, side.ends) for side in block.sides)
        return source, target

    def add(self, place: Place, observed: tuple[Codes, Codes]) -> None:
        if place.group not in self._groups:
            self._groups[place.group] = _Group(place)
        self._groups[place.group].add(place.lines, observed)

    def finish(self) -> list[Finding]:
        self._drifts = [drift for group in self._groups.values() for drift in group.drifts()]
        return [*self._shifted(), *self._unmatched()]

    def removed(self) -> Mapping[str, NDArray[np.int64]]:
        """All pairs of the shifted stretches. A corpus that matches nowhere is left whole: that is for people to judge."""
        numbers = [
            drift.group.first_pair + np.arange(drift.stretch.first, drift.stretch.last + 1)
            for drift in self._drifts
            if not drift.is_everything
        ]
        return {RULE: np.concatenate(numbers)} if numbers else {}

    def _shifted(self) -> Iterator[Finding]:
        drifts = [drift for drift in self._drifts if not drift.is_everything]
        if not drifts:
            return
        count = sum(drift.pairs for drift in drifts)
        known = any(drift.stretch.offset != NOWHERE for drift in drifts)
        yield Finding(
            RULE,
            "serious" if known else "notable",
            count,
            count / sum(group.pairs for group in self._groups.values()),
            f"The two sides are out of step {_where(drifts)}, so a model would learn wrong translations from these pairs.",
            "Align the files again from that line on, or leave these pairs out with --write.",
            tuple(_example(drift) for drift in drifts[:MOST_EXAMPLES]),
            self.role,
        )

    def _unmatched(self) -> Iterator[Finding]:
        drifts = [drift for drift in self._drifts if drift.is_everything]
        if not drifts:
            return
        count = sum(drift.pairs for drift in drifts)
        yield Finding(
            UNMATCHED,
            "notable",
            count,
            count / sum(group.pairs for group in self._groups.values()),
            "Lengths, digits and punctuation of the two sides have nothing to do with each other, "
            "as if one side were in another order.",
            "Check that the two files belong together and have the same order.",
            tuple(_example(drift) for drift in drifts[:MOST_EXAMPLES]),
            self.role,
        )


def _where(drifts: Sequence[_Drift]) -> str:
    first = drifts[0]
    begin = f"from line {first.group.line_of(first.stretch.first):,}"
    if len(drifts) > 1:
        return f"in {len(drifts)} stretches of lines, the first {begin} on"
    return f"{begin} to line {first.group.line_of(first.stretch.last):,}"


def _example(drift: _Drift) -> Example:
    """The first pair of a stretch, with the texts if the two sides are files of their own."""
    line = drift.group.line_of(drift.stretch.first)
    texts = [_line_at(file, line) for file in drift.group.files] if len(drift.group.files) == 2 else ["", ""]
    return Example(drift.group.files[0], line, texts[0], texts[1], _detail(drift, line))


def _detail(drift: _Drift, line: int) -> str:
    last, offset = drift.group.line_of(drift.stretch.last), drift.stretch.offset
    stretch = f"lines {line:,} to {last:,}"
    if offset == NOWHERE:
        return f"{stretch}: the sources match no targets nearby"
    lines = f"{abs(offset):,} line{'s' * (abs(offset) > 1)}"
    return f"{stretch}: each source matches the target {lines} {'later' if offset > 0 else 'earlier'}"


def _line_at(path: str, number: int) -> str:
    """A line of a file, read anew; empty if the file cannot be read a second time."""
    try:
        with open_bytes(path) as file:
            return shown(next(islice(file, number - 1, None), b"").rstrip(b"\r\n"))
    except READ_ERRORS:
        return ""
