"""Fetching a few pairs by their numbers, for findings that are known only after everything has been read.

The files are read again up to the last of these pairs, so callers ask for early ones.
"""

from dataclasses import dataclass

from transduce.data import Corpus
from transduce.diagnosis.findings import MOST_EXAMPLES, Example, Role
from transduce.diagnosis.reading import PortionParser, PortionReader
from transduce.diagnosis.rules import Rows


@dataclass(frozen=True)
class Lookup:
    """The pairs of one corpus by number."""

    role: Role
    corpus: Corpus

    def examples(self, numbers: Rows, detail: str = "") -> tuple[Example, ...]:
        """The first few of these pairs; the numbers are in order."""
        wanted = [int(number) for number in numbers[:MOST_EXAMPLES]]
        found: list[Example] = []
        parse, first = PortionParser(self.role, self.corpus), 0
        for portion in PortionReader(self.role, self.corpus):
            if len(found) == len(wanted):
                break
            block = parse(portion).block
            found += [block.example(n - first, detail) for n in wanted if first <= n < first + len(block)]
            first += len(block)
        return tuple(found)
