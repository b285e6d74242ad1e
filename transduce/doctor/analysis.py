"""What an analysis is: a check that sees a corpus block by block in several processes and returns findings at the end.

The examination (`transduce/doctor/examination.py`) reads the files once, cuts them into blocks, and deals the blocks to worker
processes. For each corpus it makes the analyses anew:

    analysis = SomeAnalysis(context)
    observed = analysis.observe(block)       in a worker process, in any order, on a copy of the analysis
    analysis.add(block.place, observed)      in the main process, in the order of the corpus
    findings = analysis.finish()             in the main process, after the last block

`observe` must depend on nothing but the block and what the constructor was given: workers have copies of the analysis, and
none of them sees every block. Its result travels between processes, so it should be small: numbers of pairs, counts, arrays.
An analysis and its observations must therefore be picklable, and `add` must be fast, because it runs for every block in one
process. What is too slow for every pair collects a sample or suspects in `add` and looks at them in `finish`.

This module knows no rules and reads no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transduce.doctor.findings import Example, Finding, Role, Threshold

LONGEST_EXAMPLE = 300  # characters of a text that are shown


@dataclass(frozen=True)
class Place:
    """Where the pairs of a block come from."""

    role: Role
    group: int  # number of the group of files within its role
    files: tuple[str, ...]  # one for a table, two for aligned text files
    first_pair: int  # number of the block's first pair within the role, counted from 0 over all groups
    lines: Sequence[int]  # line number of each pair in its file, counted from 1

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Block:
    """Consecutive pairs of one group of files as raw bytes: each text is followed by a line feed and contains none.

    A byte order mark at the beginning of a file and a carriage return at the end of a line are still there.
    """

    place: Place
    source: bytes
    target: bytes

    def __len__(self) -> int:
        return len(self.place)

    @cached_property
    def source_lines(self) -> list[bytes]:
        return self.source.split(b"\n")[:-1]

    @cached_property
    def target_lines(self) -> list[bytes]:
        return self.target.split(b"\n")[:-1]

    @cached_property
    def source_texts(self) -> list[str]:
        return decoded(self.source).split("\n")[:-1]

    @cached_property
    def target_texts(self) -> list[str]:
        return decoded(self.target).split("\n")[:-1]

    @cached_property
    def source_lengths(self) -> NDArray[np.int64]:
        """Characters of each source."""
        return _lengths(self.source)

    @cached_property
    def target_lengths(self) -> NDArray[np.int64]:
        return _lengths(self.target)

    def example(self, row: int, detail: str = "") -> Example:
        """The pair in this row of the block, for people to look at."""
        source, target = _shown(self.source_lines[row]), _shown(self.target_lines[row])
        return Example(self.place.files[0], self.place.lines[row], source, target, detail)


@dataclass(frozen=True)
class Context:
    """What every analysis of one corpus is told when it is made."""

    role: Role = "train"
    languages: tuple[str, ...] = ()  # codes of source and target; empty if they are not given
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)

    def threshold(self, name: str) -> float:
        return self.thresholds[name].value


class Analysis(Protocol):
    """One check of a corpus. See the module's docstring for who calls what, and where."""

    name: str  # shown with its speed

    def observe(self, block: Block) -> Any:
        """What the analysis needs to know about a block, computed in a worker process."""
        ...

    def add(self, place: Place, observed: Any) -> None:
        """Take what `observe` returned for a block; blocks come in the order of the corpus."""
        ...

    def finish(self) -> list[Finding]:
        """What was found in the whole corpus."""
        ...

    def removed(self) -> Mapping[str, NDArray[np.int64]]:
        """By rule, the numbers of the pairs that `--write` leaves out (`Place.first_pair` + row). Asked after `finish`."""
        ...


def decoded(text: bytes) -> str:
    """The text with U+FFFD for every byte that is not UTF-8."""
    return text.decode(errors="replace")


def _lengths(text: bytes) -> NDArray[np.int64]:
    """Characters of each line, counted as bytes that do not continue a character."""
    values = np.frombuffer(text, np.uint8)
    begins = (values & 0xC0) != 0x80
    ends = np.flatnonzero(values == 0x0A)
    total = np.cumsum(begins)[ends]
    return np.diff(total, prepend=0) - 1


def _shown(line: bytes) -> str:
    text = decoded(line)
    return text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 1] + "…"
