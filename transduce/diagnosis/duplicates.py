"""Exact duplicates: pairs that occur again, and sources and targets that occur with different partners.

Costs 24 bytes a pair, which go to a temporary file when there are many. Texts with equal hashes of 64 bits are taken for equal.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place
from transduce.diagnosis.findings import MOST_EXAMPLES, Finding
from transduce.diagnosis.lookup import Lookup
from transduce.diagnosis.rules import NO_ROWS, Rows

IN_MEMORY = 256 << 20  # bytes: about eleven million pairs; more are spilled to disk
HASHES_AT_ONCE = 1 << 23  # that are sorted in memory
_CHUNK = 1 << 20  # hashes that are read at a time
KINDS = ("source", "target", "pair")
RULES = {kind: f"duplicate_{kind}s" for kind in KINDS}

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class _Kind:
    explanation: str
    advice: str
    notable: float


_ABOUT = {
    "pair": _Kind(
        "Pairs that occur earlier in the corpus as well; they count several times in training.",
        "Keep them if the corpus repeats them on purpose.",
        0.1,
    ),
    "source": _Kind(
        "Sources that occur earlier with another target; a few are normal, many make translations vague.",
        "Look at the examples: keep alternative translations, and leave out templates and headings.",
        0.3,
    ),
    "target": _Kind(
        "Targets that occur earlier with another source; one target for very many sources is often a placeholder text.",
        "Look at the examples: keep alternative translations, and leave out templates and headings.",
        0.3,
    ),
}


class Duplicates:
    """Finds the texts of a corpus that occur more than once."""

    name = "exact duplicates"

    def __init__(self, context: Context, lookup: Lookup) -> None:
        self.context, self.lookup = context, lookup
        self.pairs = 0
        self._stores: dict[str, HashStore] = {}
        self._blank: list[Rows] = []
        self._again: dict[str, Rows] = {}

    def observe(self, block: Block) -> tuple[tuple[Hashes, ...], Rows]:
        return (block.source.hashes, block.target.hashes, block.hashes), block.blank

    def add(self, place: Place, observed: tuple[tuple[Hashes, ...], Rows]) -> None:
        if not len(place):
            return
        self.pairs += len(place)
        self._blank.append(observed[1] + place.first_pair)
        if not self._stores:  # not in the constructor: workers have copies of this object, and files cannot be copied
            self._stores = {kind: HashStore() for kind in KINDS}
        for kind, hashes in zip(KINDS, observed[0], strict=True):
            self._stores[kind].append(hashes)

    def finish(self) -> list[Finding]:
        if not self.pairs:
            return []
        blank = np.concatenate(self._blank)
        again = {kind: _without(self._stores[kind].repeated(), blank) for kind in KINDS}
        for store in self._stores.values():
            store.close()
        again |= {kind: _without(again[kind], again["pair"]) for kind in ("source", "target")}
        self._again = {kind: rows for kind, rows in again.items() if len(rows)}
        return [self._finding(kind, rows) for kind, rows in self._again.items()]

    def _finding(self, kind: str, rows: Rows) -> Finding:
        share, about = len(rows) / self.pairs, _ABOUT[kind]
        return Finding(
            rule=RULES[kind],
            severity="notable" if share >= about.notable else "note",
            count=len(rows),
            share=share,
            explanation=about.explanation,
            advice=about.advice,
            examples=tuple(self.lookup.pairs(rows[:MOST_EXAMPLES].tolist(), int(kind == "target")).values()),
            corpus=self.context.role,
        )

    def concerned(self) -> Mapping[str, Rows]:
        return {RULES[kind]: rows for kind, rows in self._again.items()}


def _without(numbers: Rows, others: Rows) -> Rows:
    return np.setdiff1d(numbers, others, assume_unique=True)


class HashStore:
    """A sequence of hashes, in memory or on disk."""

    def __init__(self, in_memory: int = IN_MEMORY // len(KINDS), at_once: int = HASHES_AT_ONCE) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory)  # noqa: SIM115
        self._at_once = at_once
        self.count = 0

    def append(self, hashes: Hashes) -> None:
        self._file.write(hashes.astype("<u8", copy=False).tobytes())
        self.count += len(hashes)

    def close(self) -> None:
        self._file.close()

    def repeated(self) -> Rows:
        """The numbers of the hashes that occur before, in order.

        The hashes are read several times, each time for one range of values, so that a range can be sorted in memory.
        """
        ranges = -(-self.count // self._at_once)
        bounds = [(2**64 * n) // max(1, ranges) for n in range(ranges + 1)]
        found = [self._repeated_between(low, high - 1) for low, high in pairwise(bounds)]
        return np.sort(np.concatenate([NO_ROWS, *found]))

    def _repeated_between(self, low: int, high: int) -> Rows:
        numbers, hashes = [], []
        for first, some in self._chunks():
            chosen = np.flatnonzero((some >= np.uint64(low)) & (some <= np.uint64(high)))
            numbers.append(chosen + first)
            hashes.append(some[chosen])
        return _again(np.concatenate(numbers), np.concatenate(hashes))

    def _chunks(self) -> Iterator[tuple[int, Hashes]]:
        self._file.seek(0)
        for first in range(0, self.count, _CHUNK):
            yield first, np.frombuffer(self._file.read(8 * _CHUNK), "<u8")


def _again(numbers: Rows, hashes: Hashes) -> Rows:
    """The numbers of all but the first of equal hashes; the numbers are in order, and a stable sort keeps them so."""
    order = np.argsort(hashes, kind="stable")
    same = hashes[order][1:] == hashes[order][:-1]
    return numbers[order[1:][same]]
