"""Near-duplicates: pairs that differ from an earlier pair only in case, digits, punctuation or a few words.

Candidates are found by locality-sensitive hashing of MinHash signatures (`transduce/diagnosis/minhash.py`) and confirmed by
comparing whole signatures. Exact duplicates are not counted here. Above SAMPLED pairs only a sample is compared; it is chosen
by a byte of the signature, which similar pairs share, so that near-duplicates are in the sample together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Context, Place, Side
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding
from transduce.diagnosis.lookup import Lookup
from transduce.diagnosis.minhash import BANDS, Signatures, line_hashes, signatures, similarities

RULE = "near_duplicates"
SIMILAR = 0.8  # share of word bigrams that two pairs have in common
SAMPLED = 5_000_000
NOTABLE = 0.1  # share of the pairs
_OTHER_SIDE = np.uint64(3)  # sets the hash of a target apart from that of a source

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Sketches:
    """Signatures of pairs, hashes of their bytes, and their numbers."""

    signatures: Signatures
    exact: NDArray[np.uint64]
    numbers: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, rows: Numbers | NDArray[np.bool_]) -> "Sketches":
        return Sketches(self.signatures[rows], self.exact[rows], self.numbers[rows])

    def one_in(self, share: int) -> "Sketches":
        """A sample that holds two similar pairs together or not at all, nearly always."""
        return self.select(self.signatures[:, 0] % share == 0) if share > 1 else self


def joined(sketches: list[Sketches]) -> Sketches:
    return Sketches(
        np.concatenate([one.signatures for one in sketches]),
        np.concatenate([one.exact for one in sketches]),
        np.concatenate([one.numbers for one in sketches]),
    )


@dataclass(frozen=True)
class NearDuplicates:
    """Rows of pairs, and for each the row of an earlier pair that it resembles."""

    rows: Numbers
    originals: Numbers


def find_near_duplicates(sketches: Sketches) -> NearDuplicates:
    """Each pair that resembles an earlier one; of equal pairs only the first is looked at."""
    _, firsts = np.unique(sketches.exact, return_index=True)
    firsts.sort()
    rows = sketches.signatures[firsts]
    original = np.full(len(rows), -1)
    for band in range(BANDS):
        later, earlier = _collisions(np.ascontiguousarray(rows[:, 8 * band : 8 * band + 8]).view(np.uint64).ravel())
        unknown = original[later] < 0
        later, earlier = later[unknown], earlier[unknown]
        alike = similarities(rows[later], rows[earlier]) >= SIMILAR
        original[later[alike]] = earlier[alike]
    found = np.flatnonzero(original >= 0)
    return NearDuplicates(firsts[found], firsts[original[found]])


def _collisions(keys: NDArray[np.uint64]) -> tuple[Numbers, Numbers]:
    """All but the first row of each group of equal keys, and the first row of the group."""
    order = np.argsort(keys, kind="stable")
    begins = np.concatenate([[True], np.diff(keys[order]) != 0])[: len(keys)]
    group = np.cumsum(begins) - 1
    return order[~begins], order[begins][group[~begins]]


def _in_lower_case(side: Side) -> tuple[NDArray[np.uint8], Numbers]:
    """The bytes of a side and the ends of its lines; ASCII letters are lowered later, which is faster."""
    if side.data.isascii():
        return side.bytes, side.ends
    lowered = np.frombuffer(side.text.lower().encode(), np.uint8)
    return lowered, np.flatnonzero(lowered == ord("\n"))


class NearDuplicateAnalysis:
    """Counts pairs that resemble an earlier pair. Whether they do harm depends on the purpose."""

    name = RULE

    def __init__(self, context: Context, lookup: Lookup, most: int = SAMPLED) -> None:
        self.role, self.lookup, self.most = context.role, lookup, most
        self._numbers: Numbers = np.empty(0, np.int64)
        self._kept: list[Sketches] = []
        self._share, self._size, self._seen = 1, 0, 0

    def observe(self, block: Block) -> Sketches:
        found, rows = signatures([_in_lower_case(side) for side in block.sides])
        source, target = (line_hashes(side.bytes, side.ends) for side in block.sides)
        sketches = Sketches(found, (source + _OTHER_SIDE * target)[rows], rows)
        return sketches.select(~np.isin(rows, block.blank)) if len(block.blank) else sketches

    def add(self, place: Place, observed: Sketches) -> None:
        self._seen += len(place)
        numbered = Sketches(observed.signatures, observed.exact, observed.numbers + place.first_pair)
        self._kept.append(numbered.one_in(self._share))
        self._size += len(self._kept[-1])
        while self._size > self.most and self._share < 256:
            self._share *= 2
            self._kept = [one.one_in(self._share) for one in self._kept]
            self._size = sum(map(len, self._kept))

    def finish(self) -> list[Finding]:
        if not self._size:
            return []
        sketches = joined(self._kept)
        self._kept = []
        found = find_near_duplicates(sketches)
        self._numbers = sketches.numbers[found.rows]
        share = len(found.rows) / len(sketches)
        return [self._finding(sketches, found, share)] if share > 0 else []

    def concerned(self) -> Mapping[str, Numbers]:
        return {RULE: self._numbers} if len(self._numbers) else {}

    def _finding(self, sketches: Sketches, found: NearDuplicates, share: float) -> Finding:
        return Finding(
            RULE,
            "notable" if share > NOTABLE else "note",
            round(share * self._seen),
            share,
            f"Pairs that are nearly the same as an earlier pair{self._basis(len(sketches))}: a model sees them more often than others.",
            "Keep them unless they are boilerplate.",
            self._examples(sketches, found),
            self.role,
        )

    def _basis(self, compared: int) -> str:
        return f" (estimated from {compared:,} pairs)" if self._share > 1 else ""

    def _examples(self, sketches: Sketches, found: NearDuplicates) -> tuple[Example, ...]:
        some = [
            (int(number), int(original))
            for number, original in zip(
                sketches.numbers[found.rows[:MOST_EXAMPLES]],
                sketches.numbers[found.originals[:MOST_EXAMPLES]],
                strict=True,
            )
        ]
        pairs = self.lookup.pairs(number for both in some for number in both)
        return tuple(
            replace(pairs[number], detail=f"nearly the same as {pairs[original].file}:{pairs[original].line}")
            for number, original in some
        )
