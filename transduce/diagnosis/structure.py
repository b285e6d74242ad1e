"""Findings about the files themselves: aligned files of different lengths, and lines of tables that are not pairs."""

from collections.abc import Sequence

from transduce.data import EmptyCorpus, Group
from transduce.diagnosis.analysis import Place, shown
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Finding, Role
from transduce.diagnosis.reading import Malformed, Surplus
from transduce.errors import DataError

DIFFERENT_LENGTHS, MALFORMED_LINES = "different_lengths", "malformed_lines"


class Structure:
    """Collects what could not be read as pairs."""

    def __init__(self, role: Role, groups: Sequence[Group]) -> None:
        self.role: Role = role
        self.groups = groups
        self.surplus: list[Surplus] = []
        self.malformed = 0
        self._examples: list[Example] = []

    def add(self, place: Place, malformed: Sequence[Malformed]) -> None:
        self.malformed += len(malformed)
        room = MOST_EXAMPLES - len(self._examples)
        self._examples += [
            Example(place.files[0], one.line, shown(one.text), "", one.reason) for one in malformed[:room]
        ]

    def no_pairs(self) -> DataError:
        """The error for a corpus without a single pair: the first line that is none, or that there is no line."""
        if self._examples:
            first = self._examples[0]
            return DataError(f"{first.file}:{first.line}: {first.detail}")
        return EmptyCorpus(self.groups)

    def finish(self, pairs: int) -> list[Finding]:
        return [*map(self._unequal, self.surplus), *([self._malformed_lines(pairs)] if self.malformed else [])]

    def _unequal(self, surplus: Surplus) -> Finding:
        names = " and ".join(surplus.files)
        return Finding(
            rule=DIFFERENT_LENGTHS,
            severity="serious",
            count=surplus.lines,
            share=surplus.lines / (surplus.first_line - 1 + surplus.lines),
            explanation=f"{names} have different numbers of lines, but a pair is one line in each; `transduce train` refuses "
            "them, and a line is probably missing somewhere before the end.",
            advice="Find where the sides drift apart (see the examples of drift, if there are any), and repair the shorter file.",
            examples=(Example(surplus.longer, surplus.first_line, detail="no matching line in the other file"),),
            corpus=self.role,
        )

    def _malformed_lines(self, pairs: int) -> Finding:
        return Finding(
            rule=MALFORMED_LINES,
            severity="serious",
            count=self.malformed,
            share=self.malformed / (pairs + self.malformed),
            explanation="Lines of a table that are not pairs; `transduce train` stops at the first one.",
            advice="Repair them, or name the columns with --columns.",
            examples=tuple(self._examples),
            corpus=self.role,
        )
