"""Characters of the validation and test data that the vocabulary will not know, because training has too few of them.

The vocabulary has the most frequent characters that make up nearly all of the training data (`transduce.text`). Others are spelt
in bytes, or become unknown, as `data.unknown` says.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.diagnosis.analysis import Block, Place, Side
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Role
from transduce.diagnosis.rules import Rows
from transduce.text import COVERAGES

ALL_UNTIL = 100_000  # lines of a file
EVERY = 4  # beyond them, the characters of one block in so many are counted
_PLANES = 0x110000
_MANY = 0x10000  # most characters are below, and are counted without sorting
_FEW = 20  # characters that a finding names
NOTABLE = 0.05  # share of the held-out pairs with such a character; serious, if they become unknown


class Alphabet:
    """Counts the characters of the training data and compares them with those of validation and test data."""

    name = "characters"

    def __init__(self, held_out: Mapping[Role, Sequence[Block]], unknown: str) -> None:
        self.unknown = unknown
        self._held_out = held_out
        self._counts = np.zeros(_PLANES, np.int64)

    def __getstate__(self) -> dict[str, object]:
        """Workers need neither the counts nor the held-out data."""
        return {"unknown": self.unknown}

    def observe(self, block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The characters of the block and how often each occurs; of a large corpus, some blocks are enough."""
        if len(block) and block.place.lines[0] > ALL_UNTIL and block.place.lines[0] // len(block) % EVERY:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        sides = [_codes(side) for side in block.sides]
        counts = sum(np.bincount(codes[codes < _MANY], minlength=_MANY) for codes in sides)
        assert not isinstance(counts, int)
        rare, rare_counts = np.unique(np.concatenate([codes[codes >= _MANY] for codes in sides]), return_counts=True)
        used = np.flatnonzero(counts)
        return np.concatenate([used, rare]), np.concatenate([counts[used], rare_counts])

    def add(self, place: Place, observed: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
        codes, counts = observed
        self._counts[codes] += counts

    def finish(self) -> list[Finding]:
        known = self._known()
        found = {role: list(_strange_rows(blocks, known)) for role, blocks in self._held_out.items()}
        return [self._finding(role, rows) for role, rows in found.items() if rows]

    def _finding(self, role: Role, found: Sequence["_StrangeRow"]) -> Finding:
        share = len(found) / sum(map(len, self._held_out[role]))
        often = Counter(one for row in found for one in row.characters).most_common(_FEW)
        in_bytes = self.unknown == "bytes"
        return Finding(
            rule="unknown_characters",
            severity="note" if share < NOTABLE else "notable" if in_bytes else "serious",
            count=len(found),
            share=share,
            explanation="Pairs with characters that are missing or too rare in the training data for the vocabulary: "
            f"{' '.join(one for one, _ in often)}",
            advice="They are spelt in bytes, which a model learns only from training data that has them."
            if in_bytes
            else "The model cannot read or write them: set data.unknown=bytes, and add training data that has them.",
            examples=tuple(row.example() for row in found[:MOST_EXAMPLES]),
            corpus=role,
        )

    def _known(self) -> set[str]:
        """The most frequent characters, as many as make up the share that vocabularies cover."""
        order = np.argsort(-self._counts, kind="stable")
        running = np.cumsum(self._counts[order])
        enough = int(np.searchsorted(running, COVERAGES[0] * running[-1])) + 1
        return set(map(chr, order[:enough].tolist()))

    def concerned(self) -> Mapping[str, Rows]:
        return {}


@dataclass(frozen=True)
class _StrangeRow:
    """A held-out pair and its characters that are not known."""

    block: Block
    row: int
    characters: str

    def example(self) -> Example:
        in_source = set(self.characters) & set(self.block.source.texts[self.row])
        return self.block.example(self.row, self.characters[:50], 0 if in_source else 1, self.characters)


def _strange_rows(blocks: Sequence[Block], known: set[str]) -> Iterator[_StrangeRow]:
    for block in blocks:
        for row, texts in enumerate(zip(block.source.texts, block.target.texts, strict=True)):
            if strange := [one for one in set("".join(texts)) - known if not _is_written_otherwise(one, known)]:
                yield _StrangeRow(block, row, "".join(sorted(strange)))


def _is_written_otherwise(character: str, known: set[str]) -> bool:
    """Whether normalization replaces a character by known ones: a narrow space by a space, or … by three dots."""
    return not character.isprintable() or set(unicodedata.normalize("NFKC", character)) <= known | {" "}


def _codes(side: Side) -> NDArray[np.uint32]:
    if side.data.isascii():
        return side.bytes.astype(np.uint32)
    return np.frombuffer(side.text.encode("utf-32-le", errors="replace"), np.uint32)
