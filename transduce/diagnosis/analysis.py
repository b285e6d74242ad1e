"""What an analysis is: a check that sees a corpus block by block in several processes and returns findings at the end.

The examination (`transduce/diagnosis/examination.py`) reads the files once, cuts them into blocks, and deals the blocks to worker
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
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.findings import Example, Finding, Role, Threshold

LONGEST_EXAMPLE = 300  # characters of a text that are shown
_SHORT_BLANK = 30  # bytes


@dataclass(frozen=True)
class Place:
    """Where the pairs of a block come from."""

    role: Role
    group: int  # number of the group of files within its role
    files: tuple[str, ...]  # one for a table, two for aligned text files
    lines: Sequence[int]  # line number of each pair in its file, counted from 1
    first_pair: int = 0  # number of the first pair within the role, over all groups; known in `add`, and 0 in `observe`

    def __len__(self) -> int:
        return len(self.lines)

    def file_of(self, side: int) -> str:
        """The file that holds this side (0 is the source) of the pairs."""
        return self.files[side % len(self.files)]


@dataclass(frozen=True)
class Side:
    """The sources or the targets of a block as raw bytes: each text is followed by a line feed and contains none."""

    data: bytes

    @cached_property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")[:-1]

    @cached_property
    def text(self) -> str:
        """All texts, each followed by a line feed."""
        return decoded(self.data)

    @cached_property
    def texts(self) -> list[str]:
        return self.text.split("\n")[:-1]

    @cached_property
    def bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The position of each line feed."""
        return np.flatnonzero(self.bytes == 0x0A)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each text."""
        return np.diff(self.ends, prepend=-1) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of each text: bytes that do not continue a character."""
        if self.data.isascii():
            return self.sizes
        continuing = np.flatnonzero(self.bytes.view(np.int8) < -64)  # 0x80 to 0xBF
        return self.sizes - np.diff(np.searchsorted(continuing, self.ends), prepend=0)

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """64 bits of each text, the same on every machine; carriage returns at the end do not count."""
        digests = b"".join([blake2b(line.rstrip(b"\r"), digest_size=8).digest() for line in self.lines])
        return np.frombuffer(digests, "<u8")

    @cached_property
    def blank(self) -> NDArray[np.int64]:
        """The rows without any text; of texts that consist of unusual spaces, only short ones are looked for."""
        unusual = np.flatnonzero((self.sizes < _SHORT_BLANK) & (self.lengths < self.sizes)).tolist()
        rows = [row for row, line in enumerate(self.lines) if not line.strip()]
        rows += [row for row in unusual if not decoded(self.lines[row]).strip("\ufeff \t\r").strip()]
        return np.unique(np.array(rows, np.int64))

    def rows_at(self, positions: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows in which these bytes are, each once and in order."""
        return np.unique(np.searchsorted(self.ends, np.asarray(positions, np.int64)))


@dataclass(frozen=True)
class Block:
    """Consecutive pairs of one group of files.

    A byte order mark at the beginning of a file and a carriage return at the end of a line are still there.
    """

    place: Place
    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.place)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.source, self.target

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """64 bits of each pair."""
        return mixed(self.source.hashes, self.target.hashes)

    @cached_property
    def blank(self) -> NDArray[np.int64]:
        """The rows with an empty side, which break one rule and are left out of all comparisons of the two sides."""
        return np.union1d(self.source.blank, self.target.blank)

    def without_blank(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows, each given once, that have text on both sides."""
        return np.setdiff1d(rows, self.blank, assume_unique=True) if len(rows) and len(self.blank) else rows

    def example(self, row: int, detail: str = "", side: int = 0, characters: str = "") -> Example:
        """The pair in this row of the block, for people to look at in the file of this side; long texts are cut around `characters`."""
        source, target = (shown(side.lines[row], characters) for side in self.sides)
        return Example(self.place.file_of(side), self.place.lines[row], source, target, detail)


@dataclass(frozen=True)
class Context:
    """What the constructor of every analysis of one corpus gets."""

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

    def concerned(self) -> Mapping[str, NDArray[np.int64]]:
        """By rule, the numbers of the pairs that `--write` can leave out (`Place.first_pair` + row). Asked after `finish`."""
        ...


def mixed(source: NDArray[np.uint64], target: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The hash of a pair from those of its sides: the multipliers are odd and differ, so that swapped sides differ."""
    value = source * np.uint64(0x9E3779B97F4A7C15) + target * np.uint64(0xC2B2AE3D27D4EB4F)
    return value ^ (value >> np.uint64(29))


def decoded(text: bytes) -> str:
    """The text with U+FFFD for every byte that is not UTF-8."""
    return text.decode(errors="replace")


def shown(line: bytes, characters: str = "") -> str:
    """A text as examples show it; of a long one, the part that has one of these characters."""
    return cut_around(decoded(line), characters, LONGEST_EXAMPLE)


def cut_around(text: str, characters: str, width: int) -> str:
    """At most so many characters of a text, from its beginning or, if that has none of these characters, around the first of them."""
    if len(text) <= width:
        return text
    at = next((place for place, one in enumerate(text) if one in characters), 0)
    if at < width - 1:
        return f"{text[: width - 1]}…"
    end = min(len(text), at + width // 2)
    return f"…{text[end - width + 2 : end]}{'…' * (end < len(text))}"
