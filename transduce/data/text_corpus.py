"""Corpora of running text, for language models: plain text files, read line by line.

A line of text is a pair without a source, so that the same code scans it, learns a vocabulary from it and stores its ids.
In the store every line ends in `</s>`, which stands for its line break. This module knows no ids.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from transduce.data.corpus import Corpus, Group, PairBlock, lines_of


@dataclass(frozen=True)
class TextCorpus(Corpus):
    """Text files. The held-out part is the end of each file: neighbouring lines of a text resemble each other too much."""

    unit: ClassVar = "line of text"

    def blocks(self) -> Iterator[PairBlock]:
        """The lines of this part in order."""
        for number, group in enumerate(self.groups):
            for block in self._group_blocks(group):
                yield replace(block, group=number)

    def _group_blocks(self, group: Group) -> Iterator[PairBlock]:
        begin, end, read = *self._bounds(group), 0
        for lines in lines_of(group[0]):
            taken = lines.lines[max(0, begin - read) : max(0, end - read)]
            # What was removed is counted once, with the part that has the first line of the block.
            removed = (lines.carriage_returns, lines.byte_order_marks) if begin <= read else (0, 0)
            read += len(lines.lines)
            if taken:
                yield PairBlock([""] * len(taken), taken, *removed)

    def _bounds(self, group: Group) -> tuple[int, int]:
        """The lines of this part: the first one, and the one after the last."""
        if not self.hold_out:
            return 0, 1 << 62
        lines = self._line_counts[group]
        border = lines - lines // self.hold_out
        return (border, lines) if self.part == "held out" else (0, border)

    @cached_property
    def _line_counts(self) -> dict[Group, int]:
        return {group: sum(len(lines.lines) for lines in lines_of(group[0])) for group in self.groups}
